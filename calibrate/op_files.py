"""Kernels of one model on one GPU, read from a `vllm019` folder (LLMServingSim's profiler of vLLM's own layers).

Not for other models: the files hold one model's layers. The one idea: dense layers were timed by tokens, the sampler
and LM head by sequences, and attention by whole batches, prompts and decodes together, so that mixed steps need no
guess; only between grid points is interpolated.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.interpolate import RegularGridInterpolator

from calibrate.op_tables import DecodeAttention, filled
from sim.errors import InputError
from sim.input_file import TABLE_BYTES, input_file, read_text
from sim.specs import ParallelSpec

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from calibrate.grid import GridStep
    from calibrate.samples import Column
    from sim.specs import ModelSpec

DENSE, PER_SEQUENCE, ATTENTION, META = "op_dense.csv", "op_per_sequence.csv", "op_attention.csv", "op_meta.yaml"

_PER_LAYER = {
    "layernorm": 2, "qkv_proj": 1, "rotary_emb": 1, "o_proj": 1, "gate_up_proj": 1, "act_fn": 1, "down_proj": 1,
}  # fmt: skip
"""Dense layers of a decoder layer and how often each runs."""
_ELEMENTWISE = {"layernorm": 2, "rotary_emb": 1, "act_fn": 1}
"""Those that are no GEMMs."""
_QK_NORMS = "qk_norm"
_ONCE = ("embedding", "final_layernorm")
_HEAD = ("lm_head", "sampler")
_BATCH = ["prefill_chunk", "kv_prefill", "n_decode", "kv_decode"]


@dataclass(frozen=True, slots=True)
class Meta:
    """What the profiler says of itself."""

    device: str
    model: str
    engine_version: str
    date: str
    max_num_batched_tokens: int
    max_num_seqs: int


@dataclass(frozen=True, slots=True)
class FileSteps:
    """Steps of the folder's model, composed from its layers. Seconds."""

    meta: Meta
    model: ModelSpec
    dense_us: tuple[Column, Column]
    """Tokens, and all dense layers of a step."""
    elementwise_us: tuple[Column, Column]
    """Tokens, and what of it is no GEMM."""
    per_sequence_us: tuple[Column, Column]
    """Sequences, and LM head with sampler."""
    head_us: float
    """The LM head alone, for one sequence: it is a GEMM."""
    decode: DecodeAttention
    """Of one layer, in milliseconds."""
    prompt: RegularGridInterpolator
    """Logarithms of (tokens, 1 + context before) -> of microseconds of one layer."""
    batches: pd.DataFrame
    """Rows of ATTENTION with prompts and decodes together."""

    @classmethod
    def read(cls, folder: str | os.PathLike[str], model: ModelSpec, tp: int = 1) -> FileSteps:
        """`tp`: GPUs that the model is split over, of which the files hold one's share. Raises InputError, OSError."""
        folder = Path(folder)
        dense = _table(folder / DENSE, "layer", "tokens")
        head = _table(folder / PER_SEQUENCE, "layer", "sequences")
        attention = _csv(folder / ATTENTION, *_BATCH, "time_us")
        decodes = attention[attention["prefill_chunk"] == 0]
        renamed = {"n_decode": "batch_size", "kv_decode": "step"}
        kv_bytes = model.kv_bytes_per_token(parallel=ParallelSpec(tp)) / model.num_layers
        return cls(
            meta=read_meta(folder / META),
            model=model,
            dense_us=(dense.index.to_numpy(float), _dense(dense, _PER_LAYER, model, folder / DENSE)),
            elementwise_us=(dense.index.to_numpy(float), _dense(dense, _ELEMENTWISE, model, folder / DENSE)),
            per_sequence_us=(head.index.to_numpy(float), _sum(head, dict.fromkeys(_HEAD, 1), folder / PER_SEQUENCE)),
            head_us=float(head["lm_head"].iloc[0]),
            decode=DecodeAttention.of(
                decodes.rename(columns=renamed).assign(latency=decodes["time_us"] / 1e3), kv_bytes
            ),
            prompt=_prompts(attention[attention["n_decode"] == 0]),
            batches=attention[(attention["prefill_chunk"] > 0) & (attention["n_decode"] > 0)],
        )

    def seconds(self, step: GridStep, padded_tokens: int) -> float:
        """A step of decodes alone or of prompts alone."""
        us = 0.0
        if step.decodes:
            us = 1e3 * self.decode.ms(len(step.decodes), step.decode_context)
        if step.chunks:
            launch = self._chunk_us(1, 0)
            us = launch + sum(self._chunk_us(n, before) - launch for n, before in step.chunks)
        return self._step_s(padded_tokens, step.num_seqs, us)

    def known_terms(self) -> dict[str, float]:
        """Coefficients that need no fit: what a step of one token takes beside its GEMMs, and what every further token
        adds there."""
        tokens, times = self.elementwise_us
        sampler = float(self.per_sequence_us[1][0]) - self.head_us
        launches = float(times[0]) + sampler + 1e3 * self.model.num_layers * self.decode.ms(1, 1)
        per_token = float(times[-1] - times[0]) / float(tokens[-1] - tokens[0])
        return {"step_s": launches / 1e6, "elementwise_s": per_token / 1e6}

    def mixed(self, kv_tokens: int, max_tokens: int) -> Iterator[tuple[int, int, int, int, float]]:
        """Mixed batches as they were timed: chunk, context before it, decodes, context of each, seconds of the step.

        Only those that a cache of `kv_tokens` can hold and a budget of `max_tokens` lets through.
        """
        for chunk, before, rows, context, us in self.batches[[*_BATCH, "time_us"]].itertuples(index=False, name=None):
            if chunk + before + rows * context <= kv_tokens and chunk + rows <= max_tokens:
                yield int(chunk), int(before), int(rows), int(context), self._step_s(chunk + rows, 1 + rows, us)

    def _step_s(self, tokens: float, seqs: float, attention_us: float) -> float:
        layers = float(np.interp(tokens, *self.dense_us)) + float(np.interp(seqs, *self.per_sequence_us))
        return (layers + self.model.num_layers * attention_us) / 1e6

    def _chunk_us(self, tokens: float, before: float) -> float:
        axes = self.prompt.grid
        at = [np.clip(np.log(v), axis[0], axis[-1]) for v, axis in zip((tokens, 1 + before), axes, strict=True)]
        return float(np.exp(self.prompt(at)[0]))


def read_meta(file: Path) -> Meta:
    """The lines that matter of the profiler's YAML, which is plain `key: value`; outer keys come before inner ones."""
    found: dict[str, str] = {}
    for line in read_text(file).splitlines():
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), value.strip().strip("'\""))
    try:
        return Meta(
            device=found["gpu"],
            model=found["model"],
            engine_version=found["vllm_version"],
            date=found["profiled_at"][:10],
            max_num_batched_tokens=int(found["max_num_batched_tokens"]),
            max_num_seqs=int(found["max_num_seqs"]),
        )
    except KeyError as error:
        raise InputError("missing key", file=file, field=str(error.args[0])) from None
    except ValueError as error:
        raise InputError(f"not a whole number: {error}", file=file) from None


def _csv(file: Path, *columns: str) -> pd.DataFrame:
    try:
        table = pd.read_csv(input_file(file, TABLE_BYTES))
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise InputError(f"not a CSV file: {error}", file=file) from None
    for column in columns:
        if column not in table:
            raise InputError("missing column", file=file, field=column)
    times = pd.to_numeric(table["time_us"], errors="coerce")
    bad = np.flatnonzero(~(np.isfinite(times) & (times > 0)))
    if bad.size:
        row = int(bad[0])
        value = str(table["time_us"].iloc[row])
        raise InputError(file=file, line=row + 2, field="time_us", value=value, expected="a time > 0")
    return table


def _table(file: Path, layer: str, size: str) -> pd.DataFrame:
    """Times with one row per size and one column per layer."""
    table = _csv(file, layer, size, "time_us")
    return table.pivot_table(index=size, columns=layer, values="time_us", aggfunc="median").sort_index()


def _dense(table: pd.DataFrame, layers: dict[str, int], model: ModelSpec, file: Path) -> Column:
    per_layer = _sum(table, layers, file)
    if _QK_NORMS in table:
        per_layer = per_layer + table[_QK_NORMS].to_numpy(float)
    return model.num_layers * per_layer + _sum(table, dict.fromkeys(_ONCE, 1), file)


def _sum(table: pd.DataFrame, times: dict[str, int], file: Path) -> Column:
    missing = [name for name in times if name not in table]
    if missing:
        raise InputError("missing layer", file=file, field="layer", value=missing[0], expected=", ".join(times))
    total: Column = np.sum([count * table[name].to_numpy(float) for name, count in times.items()], axis=0)
    return total


def _prompts(rows: pd.DataFrame) -> RegularGridInterpolator:
    table = rows.pivot_table(index="prefill_chunk", columns="kv_prefill", values="time_us", aggfunc="median")
    axes = np.log(table.index.to_numpy(float)), np.log(1 + table.columns.to_numpy(float))
    return RegularGridInterpolator(axes, np.log(filled(table.to_numpy(float))))
