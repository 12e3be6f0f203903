"""Kernels of one GPU, read from tables of single calls (NVIDIA AIConfigurator's Parquet files), for any decoder.

Not for whole steps: that is compose.py. The one idea: GEMMs, attention and all-reduces were timed on grids, so a
kernel of any size is an interpolation in logarithms between its neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.interpolate import RegularGridInterpolator

from calibrate.expert_tables import ExpertKernels
from calibrate.samples import KERNELS, NO_GRAPH, Samples, TimedStep
from calibrate.table_file import read_table, timed
from sim.errors import InputError
from sim.plurals import counted
from sim.specs import ParallelSpec

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from calibrate.samples import Column
    from sim.specs import ModelSpec

CACHED_BYTES = (1e6, 50e6)
"""KV caches of one layer that a timing loop finds in the L2 cache (H100, H200: 50 MB) and a server does not. Smaller
ones do not matter, as launching the kernel takes longer than reading them."""
_FEWEST_TOKENS, _MOST_TOKENS = 256, 32768
_SHORTEST_PROMPT = 64
_KERNELS: dict[str, Any] = {"source": "op tables", "state": KERNELS, "graph": NO_GRAPH}

_HEADS = ("num_heads", "num_key_value_heads")

_CUSTOM_ALLREDUCE_BYTES = 8 << 20
"""vLLM's own all-reduce kernel takes messages up to this size, NCCL the others (vllm/distributed)."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """Milliseconds of one BF16 GEMM (m tokens, n outputs, k inputs), interpolated in logarithms between kernels."""

    grid: RegularGridInterpolator
    lengths: Column
    """Every m that was timed."""
    narrowest: float
    widest: float

    @classmethod
    def read(cls, folder: Path) -> Gemm:
        table = read_table(folder / "gemm_perf.parquet", "gemm_dtype", "m", "n", "k", "latency")
        table = table[table["gemm_dtype"] == "bfloat16"]
        cube = table.groupby(["m", "n", "k"])["latency"].median().unstack(["n", "k"])
        ms, ns, ks = (np.unique(table[axis]) for axis in "mnk")
        cube = cube.reindex(columns=pd.MultiIndex.from_product([ns, ks]))
        values = np.log(cube.to_numpy().reshape(ms.size, ns.size, ks.size))
        grid = RegularGridInterpolator((np.log(ms), np.log(ns), np.log(ks)), values)
        return cls(grid, ms.astype(float), float(ns[0]), float(ns[-1]))

    def ms(self, m: float, n: float, k: float) -> float:
        """A matrix wider than the widest that was timed counts in proportion (the LM head), one narrower than the
        narrowest as that (a router)."""
        n = max(n, self.narrowest)
        wide = max(1.0, n / self.widest)
        try:
            return wide * float(np.exp(self.grid(np.log([[m, n / wide, k]]))[0]))
        except ValueError:
            low, high = self.lengths[0], self.lengths[-1]
            expected = f"a size that was timed: up to {self.widest:g} wide, {low:g} to {high:g} tokens"
            raise InputError(field="GEMM", value=f"{m:g} x {n:g} x {k:g}", expected=expected) from None


@dataclass(frozen=True, slots=True)
class DecodeAttention:
    """Milliseconds of one layer's attention for a batch of single tokens, each with the same context."""

    grid: RegularGridInterpolator
    largest: float
    """Batch."""
    shortest: float
    longest: float
    """Contexts."""

    @classmethod
    def of(cls, rows: pd.DataFrame, kv_bytes: float, window: float = math.inf) -> DecodeAttention:
        """From rows (batch_size, step, latency); `kv_bytes`: of one token in one layer, which reads `window` of them.

        What the L2 cache held during the timing is put back to main memory's speed: the kernel's time without context,
        and the KV cache at the speed of the largest caches in the table.
        """
        table = rows.pivot_table(index="batch_size", columns="step", values="latency", aggfunc="median")
        batches, contexts = table.index.to_numpy(float), table.columns.to_numpy(float)
        times = filled(table.to_numpy(float))
        read = np.outer(batches, np.minimum(contexts, window)) * kv_bytes
        bytes_per_ms = np.nanmax(np.where(np.isnan(table.to_numpy(float)), np.nan, read / times))
        cached = (read > CACHED_BYTES[0]) & (read < CACHED_BYTES[1])
        cold = times[:, :1] + read / bytes_per_ms
        times = np.where(cached & (batches[:, None] <= _ONE_WAVE), np.maximum(times, cold), times)
        return cls(
            RegularGridInterpolator((np.log(batches), np.log(contexts)), np.log(times)),
            float(batches[-1]),
            float(contexts[0]),
            float(contexts[-1]),
        )

    def ms(self, batch: float, total_context: float) -> float:
        """`batch` rows that attend to `total_context` tokens together; beyond the grid in proportion."""
        more = max(1.0, batch / self.largest)
        batch, mean = batch / more, max(self.shortest, total_context / batch)
        longer = max(1.0, mean / self.longest)
        return more * longer * float(np.exp(self.grid((np.log(batch), np.log(mean / longer)))))


_ONE_WAVE = 64
"""Up to so many rows the kernel's time without context is its launch, not its rows; reading comes on top of it."""


@dataclass(frozen=True, slots=True)
class PromptAttention:
    """Milliseconds of one layer's causal attention for one chunk of a prompt."""

    lengths: Column
    times: Column
    """Of whole prompts, alone."""
    window: float = math.inf
    """Tokens that each one attends to at most."""

    @classmethod
    def of(cls, rows: pd.DataFrame, window: float = math.inf) -> PromptAttention:
        """From rows (batch_size, isl, latency)."""
        alone = rows[rows["batch_size"] == 1].groupby("isl")["latency"].median()
        return cls(alone.index.to_numpy(float), alone.to_numpy(float), window)

    def whole(self, length: float) -> float:
        """A whole prompt; beyond the longest by its query-key pairs."""
        longest = float(self.lengths[-1])
        if length > longest:
            return float(self.times[-1]) * self._pairs(length) / self._pairs(longest)
        return float(np.exp(np.interp(np.log(length), np.log(self.lengths), np.log(self.times))))

    def ms(self, tokens: float, before: float) -> float:
        """A chunk after `before` tokens: its pairs' share of the whole prompt's, at least a launch."""
        pairs = self._pairs(before + tokens)
        return max(self.floor, (1 - self._pairs(before) / pairs) * self.whole(before + tokens))

    def _pairs(self, length: float) -> float:
        near = min(length, self.window)
        return near**2 / 2 + (length - near) * near

    @property
    def floor(self) -> float:
        """The least that a call takes."""
        return float(self.times.min())


class OpTables:
    """The kernels of one GPU. Raises InputError and OSError for a folder that does not hold them."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.gemm = Gemm.read(self.folder)
        described = read_table(self.folder / "gemm_perf.parquet")
        self.device = str(described["device"].iloc[0]) if "device" in described else "unknown"
        self.engine_version = str(described["version"].iloc[0]) if "version" in described else "unknown"
        self._decode = cache(self._read_decode)
        self._prompt = cache(self._read_prompt)
        self._experts = cache(self._read_experts)
        self._allreduce = cache(self._read_allreduce)

    def attention(self, kind: str, model: ModelSpec, tp: int = 1, window: int = 0) -> pd.DataFrame:
        """Rows of `context` or `generation` attention with one GPU's heads: batch_size, isl, step, latency (ms).

        Of layers that look back on `window` tokens, or on all (0). Heads that were not timed are made of those that
        were (`_with_heads`).
        """
        file = self.folder / f"{kind}_attention_perf.parquet"
        # FP16 takes as long as BF16: the same bytes, the same tensor cores.
        wanted = {"head_dim": model.head_size, "kv_cache_dtype": "bfloat16", "window_size": window}
        table = timed(read_table(file, "batch_size", "isl", "step", "latency", *_HEADS, *wanted), file, wanted)
        heads, kv_heads = model.num_heads // tp, model.kv_heads_per_gpu(ParallelSpec(tp))
        found = _with_heads(table, heads, kv_heads, prompts=kind == "context")
        if found is None:
            value, field = f"{heads} with {counted(kv_heads, 'KV head')}", "num_heads"
            raise InputError(file=file, field=field, value=value, expected="heads that were timed, or parts of such")
        return found

    def decode_attention(self, model: ModelSpec, tp: int = 1, window: int = 0) -> DecodeAttention:
        """One layer's attention of single tokens, on one of `tp` GPUs."""
        return self._decode(model, tp, window)

    def prompt_attention(self, model: ModelSpec, tp: int = 1, window: int = 0) -> PromptAttention:
        """One layer's attention of prompts, on one of `tp` GPUs."""
        return self._prompt(model, tp, window)

    def experts(self, model: ModelSpec, tp: int = 1) -> ExpertKernels:
        """One layer's routed experts, on one of `tp` GPUs."""
        return self._experts(model, tp)

    def matrices(self, model: ModelSpec, tp: int = 1) -> tuple[list[tuple[int, int]], tuple[float, int]]:
        """(outputs, inputs) of one layer's GEMMs on one of `tp` GPUs, and of the LM head.

        QKV and gate-up are split by columns, the others by rows, the LM head by its vocabulary. A mixture of experts
        has the router, which is whole on every GPU, and the experts that every token passes through.
        """
        hidden, heads, size = model.hidden_size, model.num_heads // tp, model.head_size
        kv_heads, width = model.kv_heads_per_gpu(ParallelSpec(tp)), dense_width(model) // tp
        qkv = (heads + 2 * kv_heads) * size
        layer = [(qkv, hidden), (hidden, heads * size)]
        if model.experts is not None:
            layer.append((model.experts.num_experts, hidden))
        if width:
            layer += [(2 * width, hidden), (hidden, width)]
        return layer, (model.vocab_size / tp, hidden)

    def linear_ms(self, model: ModelSpec, tokens: float, sampled: float) -> float:
        """All GEMMs of a step as they were timed: a layer's on all tokens, the LM head on the rows that sample."""
        layer, head = self.matrices(model)
        experts = 0.0 if model.experts is None else self.experts(model).ms(tokens)
        layer_ms = experts + sum(self.gemm.ms(tokens, n, k) for n, k in layer)
        return model.num_layers * layer_ms + self.gemm.ms(sampled, *head)

    def allreduce_ms(self, tp: int, size_bytes: float) -> float:
        """One all-reduce between `tp` GPUs: vLLM's own kernel inside a CUDA graph, NCCL's for large messages."""
        if tp == 1:
            return 0.0
        own, nccl = self._allreduce(tp)
        sizes, times = own if size_bytes <= _CUSTOM_ALLREDUCE_BYTES else nccl
        beyond = max(1.0, size_bytes / float(sizes[-1]))
        log_ms = float(np.interp(math.log(size_bytes / beyond), np.log(sizes), np.log(times)))
        return beyond * math.exp(log_ms)

    def samples(self, model: ModelSpec) -> Samples:
        """Kernels alone: steps of prompts and of decodes, over all batches and lengths in the tables."""
        return Samples.of_steps([*self._prompts(model), *self._decodes(model)])

    def _prompts(self, model: ModelSpec) -> Iterator[TimedStep]:
        """Equal prompts of the lengths that attention was timed at, and one prompt of every length that GEMMs were."""
        table = self.attention("context", model)
        steps = _columns(table[table["batch_size"] > 1], "batch_size", "isl", "latency")
        alone = table[table["batch_size"] == 1].groupby("isl")["latency"].median()
        lengths = self.gemm.lengths[self.gemm.lengths <= alone.index.max()]
        steps += [(1.0, n, float(np.interp(n, alone.index, alone))) for n in lengths]
        for batch, length, attention_ms in steps:
            tokens = batch * length
            if _FEWEST_TOKENS <= tokens <= _MOST_TOKENS and length >= _SHORTEST_PROMPT:
                ms = self.linear_ms(model, tokens, batch) + model.num_layers * attention_ms
                prompts = [(int(length), 0)] * int(batch)
                yield TimedStep.of(prompts, [], ms / 1e3, regime="kernels, prompts", **_KERNELS)

    def _decodes(self, model: ModelSpec) -> Iterator[TimedStep]:
        layer_bytes = model.kv_bytes_per_token() / model.num_layers
        table = self.attention("generation", model)
        for batch, before, attention_ms in _columns(table, "batch_size", "step", "latency"):
            context = batch * before
            if not CACHED_BYTES[0] < context * layer_bytes < CACHED_BYTES[1]:
                ms = self.linear_ms(model, batch, batch) + model.num_layers * attention_ms
                rows = [int(before)] * int(batch)
                yield TimedStep.of([], rows, ms / 1e3, regime="kernels, decode", **_KERNELS)

    def _read_decode(self, model: ModelSpec, tp: int, window: int) -> DecodeAttention:
        kv_bytes = model.kv_bytes_per_token(parallel=ParallelSpec(tp)) / model.num_layers
        return DecodeAttention.of(self.attention("generation", model, tp, window), kv_bytes, window or math.inf)

    def _read_prompt(self, model: ModelSpec, tp: int, window: int) -> PromptAttention:
        return PromptAttention.of(self.attention("context", model, tp, window), window or math.inf)

    def _read_experts(self, model: ModelSpec, tp: int) -> ExpertKernels:
        return ExpertKernels.read(self.folder, model, tp)

    def _read_allreduce(self, tp: int) -> tuple[tuple[Column, Column], tuple[Column, Column]]:
        own = self.folder / "custom_allreduce_perf.parquet"
        nccl = self.folder / "nccl_perf.parquet"
        graph = read_table(own, "backend", "num_gpus", "message_size", "latency").query("backend == 'vllm_graph'")
        large = read_table(nccl, "op_name", "nccl_dtype", "num_gpus", "message_size", "latency")
        large = large.query("op_name == 'all_reduce' and nccl_dtype == 'half'")
        return _by_size(graph, tp, own), _by_size(large, tp, nccl)


def dense_width(model: ModelSpec) -> int:
    """Of the MLP that all tokens of a layer pass through, experts that they are routed to apart; 0: there is none."""
    return model.mlp_width if model.experts is None else model.experts.shared_expert_intermediate_size


def _with_heads(table: pd.DataFrame, heads: int, kv_heads: int, *, prompts: bool) -> pd.DataFrame | None:
    """Kernels of a number of heads; None where nothing like them was timed.

    KV heads do not know of each other, so a batch of b with 32 of them is one of 4 b with 8. More query heads for a KV
    head cost prompts in proportion, and decodes, which wait for the KV cache, nothing.
    """
    timed = set(zip(*(table[column] for column in _HEADS), strict=True))

    def rows(heads: int, kv_heads: int) -> pd.DataFrame:
        return table[(table[_HEADS[0]] == heads) & (table[_HEADS[1]] == kv_heads)]

    for parts in (1, 2, 4, 8, 16, 32, 64):
        if heads % parts == 0 and kv_heads % parts == 0 and (heads // parts, kv_heads // parts) in timed:
            found = rows(heads // parts, kv_heads // parts)
            found = found[found["batch_size"] % parts == 0]
            return found.assign(batch_size=found["batch_size"] // parts)
    wider = min((n for n, kv in timed if kv == kv_heads and n > heads), default=None)
    if wider is None:
        return None
    found = rows(wider, kv_heads)
    return found.assign(latency=found["latency"] * heads / wider) if prompts else found


def _by_size(table: pd.DataFrame, tp: int, file: Path) -> tuple[Column, Column]:
    rows = table[table["num_gpus"] == tp].groupby("message_size")["latency"].median()
    if rows.empty:
        sizes = ", ".join(str(n) for n in sorted(set(table["num_gpus"])))
        raise InputError(file=file, field="num_gpus", value=tp, expected=f"a number of GPUs that was timed: {sizes}")
    return rows.index.to_numpy(float), rows.to_numpy(float)


def filled(times: Column) -> Column:
    """Times where batches that did not fit the memory (NaN) take twice as long as those of half the size."""
    whole = times.copy()
    for row, column in zip(*np.nonzero(np.isnan(whole)), strict=True):
        # Row by row: the neighbour above and left is known already, or was filled just now.
        whole[row, column] = 2 * (whole[row - 1, column] if row else whole[row, column - 1])
    return whole


def _columns(table: pd.DataFrame, *names: str) -> list[tuple[float, ...]]:
    return [tuple(row) for row in table[list(names)].to_numpy(float)]
