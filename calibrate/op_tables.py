"""Composes steps of a dense decoder from tables of single kernels (NVIDIA AIConfigurator's Parquet files).

Not for host time, norms or mixed batches: the tables have none. The one idea: a step is the sum of its layers' GEMMs on
all tokens at once and of its attention kernels; what a server adds to that is the fit's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.interpolate import RegularGridInterpolator

from calibrate.samples import KERNELS, NO_GRAPH, Samples, TimedStep
from sim.errors import InputError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from sim.specs import ModelSpec

_CACHED_BYTES = (1e6, 50e6)
"""KV caches of one layer that a timing loop finds in the L2 cache and a server does not: such rows are left out.
Smaller ones stay, as launching the kernel takes longer than reading them."""
_FEWEST_TOKENS, _MOST_TOKENS = 256, 32768
_SHORTEST_PROMPT = 64
_KERNELS: dict[str, Any] = {"source": "op tables", "state": KERNELS, "graph": NO_GRAPH}


@dataclass(frozen=True, slots=True)
class Gemm:
    """Milliseconds of one BF16 GEMM (m tokens, n outputs, k inputs), interpolated in logarithms between kernels."""

    grid: RegularGridInterpolator
    lengths: NDArray[np.float64]
    """Every m that was timed."""
    widest: float

    @classmethod
    def read(cls, folder: Path) -> Gemm:
        table = pd.read_parquet(folder / "gemm_perf.parquet")
        table = table[table["gemm_dtype"] == "bfloat16"]
        cube = table.groupby(["m", "n", "k"])["latency"].median().unstack(["n", "k"])
        ms, ns, ks = (np.unique(table[axis]) for axis in "mnk")
        cube = cube.reindex(columns=pd.MultiIndex.from_product([ns, ks]))
        values = np.log(cube.to_numpy().reshape(ms.size, ns.size, ks.size))
        return cls(
            RegularGridInterpolator((np.log(ms), np.log(ns), np.log(ks)), values), ms.astype(float), float(ns[-1])
        )

    def ms(self, m: float, n: float, k: float) -> float:
        """A matrix wider than the widest that was timed counts in proportion (the LM head)."""
        wide = max(1.0, n / self.widest)
        return wide * float(np.exp(self.grid(np.log([[m, n / wide, k]]))[0]))


class OpTables:
    """The kernels of one GPU."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.gemm = Gemm.read(self.folder)

    def attention(self, kind: str, model: ModelSpec) -> pd.DataFrame:
        """Rows of `context` or `generation` attention with the model's heads: batch_size, isl, step, latency (ms)."""
        file = self.folder / f"{kind}_attention_perf.parquet"
        table = pd.read_parquet(file)
        wanted = {
            "num_heads": model.num_heads,
            "num_key_value_heads": model.num_kv_heads,
            "head_dim": model.head_size,
            "kv_cache_dtype": model.dtype,
            "window_size": 0,
        }
        for column, value in wanted.items():
            table = table[table[column] == value]
            if table.empty:
                raise InputError(file=file, field=column, value=value, expected="kernels timed for it")
        return table

    def linear_ms(self, model: ModelSpec, tokens: float, sampled: float) -> float:
        """All GEMMs of a step: four per layer on all tokens, the LM head on the rows that sample."""
        hidden, heads, kv_heads, size = model.hidden_size, model.num_heads, model.num_kv_heads, model.head_size
        layer = [
            ((heads + 2 * kv_heads) * size, hidden),
            (hidden, heads * size),
            (2 * model.mlp_width, hidden),
            (hidden, model.mlp_width),
        ]
        per_layer = sum(self.gemm.ms(tokens, n, k) for n, k in layer)
        return model.num_layers * per_layer + self.gemm.ms(sampled, model.vocab_size, hidden)

    def samples(self, model: ModelSpec) -> Samples:
        """Steps of prompts alone and of decodes alone, over all batches and lengths in the tables."""
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
            if not _CACHED_BYTES[0] < context * layer_bytes < _CACHED_BYTES[1]:
                ms = self.linear_ms(model, batch, batch) + model.num_layers * attention_ms
                rows = [int(before)] * int(batch)
                yield TimedStep.of([], rows, ms / 1e3, regime="kernels, decode", **_KERNELS)


def _columns(table: pd.DataFrame, *names: str) -> list[tuple[float, ...]]:
    return [tuple(row) for row in table[list(names)].to_numpy(float)]
