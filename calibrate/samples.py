"""Measured steps as aligned columns: what every source of timings hands to the fit.

Not for reading any source's files (one module per source) and not for Parquet (samples_file.py). The one idea: a sample
is what a step computed, with as much of its composition as the source knows, and its seconds; what a source does not
know is NaN, never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Column = NDArray[np.float64]
Texts = NDArray[np.str_]


SUSTAINED, LONE, KERNELS = "sustained", "lone", "kernels"
STATES = (SUSTAINED, LONE, KERNELS)

FULL_GRAPH, PIECEWISE_GRAPH, NO_GRAPH, GRAPH_UNKNOWN = "full", "piecewise", "none", ""
GRAPHS = (FULL_GRAPH, PIECEWISE_GRAPH, NO_GRAPH, GRAPH_UNKNOWN)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the samples of one table come from: one device, one model, one engine."""

    device: str
    """As the device calls itself ("NVIDIA H200"; a CPU's model name). Tables of different devices do not mix."""
    model: str = ""
    """Name of the model; tables of different models, parallel sizes or dtypes do not mix either."""
    tensor_parallel_size: int = 1
    dtype: str = ""
    engine: str = ""
    """What ran the steps: "vllm", "torch"."""
    engine_version: str = ""
    driver: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Library -> version."""
    date: str = ""
    """ISO 8601, with the zone."""
    command: str = ""
    """What measured, as it was called, without the paths of one machine."""
    model_config: Mapping[str, Any] = field(default_factory=dict)
    """The model's config.json."""
    capture_sizes: tuple[int, ...] = ()
    """Batch sizes with a CUDA graph."""
    server: Mapping[str, Any] = field(default_factory=dict)
    """vLLM flags (underscores) that it was measured under."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What else a reader must know: the attention kernel, shapes skipped for lack of memory, a public source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep:
    """One timed step. Times in seconds, sizes in tokens, sequences and query-key pairs; see `Samples` for each."""

    seconds: float
    host_seconds: float = nan
    num_tokens: int
    padded_tokens: int
    num_seqs: int
    chunk_tokens: int
    num_chunks: int
    num_sampled: int
    decode_context: float = nan
    chunk_pairs: float = nan
    chunks: tuple[tuple[int, int], ...] | None = None
    decodes: tuple[int, ...] | None = None
    graph: str = GRAPH_UNKNOWN
    repeats: int = 1
    spread: float = nan
    source: str = ""
    regime: str = ""
    state: str = SUSTAINED

    @classmethod
    def of(
        cls,
        chunks: Iterable[tuple[int, int]],
        decodes: Iterable[int],
        seconds: float,
        *,
        num_sampled: int | None = None,
        padded_tokens: int | None = None,
        **known: Any,
    ) -> TimedStep:
        """From the whole composition: chunks (tokens, context before them) and the decode rows' contexts.

        Without `num_sampled` every sequence samples; without `padded_tokens` nothing was padded.
        """
        listed, rows = tuple((n, c) for n, c in chunks), tuple(decodes)
        tokens = sum(n for n, _ in listed)
        total, seqs = tokens + len(rows), len(listed) + len(rows)
        return cls(
            seconds=seconds,
            num_tokens=total,
            padded_tokens=total if padded_tokens is None else padded_tokens,
            num_seqs=seqs,
            chunk_tokens=tokens,
            num_chunks=len(listed),
            num_sampled=seqs if num_sampled is None else num_sampled,
            decode_context=float(sum(rows)),
            chunk_pairs=sum(n * (c + 0.5 * n) for n, c in listed),
            chunks=listed,
            decodes=rows,
            **{"regime": kind(len(listed), len(rows)), **known},
        )

    @classmethod
    def of_totals(cls, num_chunks: int, chunk_tokens: int, num_decodes: int, seconds: float, **known: Any) -> TimedStep:
        """From totals, as logs have them: contexts stay unknown unless named (`decode_context`, `chunk_pairs`)."""
        total, seqs = chunk_tokens + num_decodes, num_chunks + num_decodes
        empty = {"decode_context": nan if num_decodes else 0.0, "chunk_pairs": nan if num_chunks else 0.0}
        given: dict[str, Any] = {
            "padded_tokens": total, "num_sampled": seqs, "regime": kind(num_chunks, num_decodes), **empty, **known,
        }  # fmt: skip
        return cls(
            seconds=seconds,
            num_tokens=total,
            num_seqs=seqs,
            chunk_tokens=chunk_tokens,
            num_chunks=num_chunks,
            **given,
        )


def kind(num_chunks: int, num_decodes: int) -> str:
    """The plainest regime: "decode", "prompt" or "mixed"."""
    return "mixed" if num_chunks and num_decodes else "prompt" if num_chunks else "decode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Steps, one per position of every column. Tokens, sequences, query-key pairs, seconds."""

    num_tokens: Column
    """Tokens computed, without padding."""
    padded_tokens: Column
    """Tokens that the GPU computed: with a CUDA graph its capture size, else `num_tokens`."""
    num_seqs: Column
    decode_context: Column
    """Tokens in the KV cache that the decode rows attend to, summed over the rows; NaN where the source has none."""
    chunk_tokens: Column
    num_chunks: Column
    chunk_pairs: Column
    """As in `sim.latency.StepShape`; NaN where unknown."""
    num_sampled: Column
    seconds: Column
    """The step's time: without `host_seconds` where those are known, else with all that the GPU waited for."""
    host_seconds: Column
    """What the host took on top (scheduling, input preparation); NaN where it was not told apart."""
    repeats: Column
    """Timings behind `seconds`, which is their median."""
    spread: Column
    """Half the distance of their 16th and 84th percentile, relative to the median; NaN for a single one."""
    graph: Texts
    """"full", "piecewise", "none"; "" where unknown."""
    source: Texts
    """What made the row: "torch", "vllm", "iteration log", "op tables", "client steps"."""
    regime: Texts
    """Kind of step and source, such as "served, decode": each regime weighs the same in a fit."""
    state: Texts
    """What the GPU did before: "sustained" serving, which a profile is for; "lone" prompts between decodes, which find
    a cooler GPU at higher clocks; "kernels" timed one by one, without a server around them."""
    chunks: NDArray[np.object_]
    """Tuples of (tokens, context before) per chunk; None where the source has totals only."""
    decodes: NDArray[np.object_]
    """Tuples of contexts; None likewise."""
    origins: tuple[Origin, ...] = ()
    """Of every table that went in."""

    def __post_init__(self) -> None:
        check(self)

    def __len__(self) -> int:
        return self.seconds.size

    @property
    def mixed_context(self) -> Column:
        """The decode rows' context where chunks are beside them, else 0."""
        return np.where(self.chunk_tokens > 0, self.decode_context, 0.0)

    @property
    def num_decodes(self) -> Column:
        """Sequences that compute one token."""
        return self.num_seqs - self.num_chunks

    @classmethod
    def make(cls, *, origins: tuple[Origin, ...] = (), **columns: object) -> Samples:
        """From columns or constants by name. `num_tokens`, `num_seqs`, `decode_context`, `chunk_tokens`, `num_chunks`,
        `chunk_pairs`, `seconds` and `regime` are needed; the others have the defaults of a `TimedStep`."""
        size = len(np.asarray(columns["seconds"]))
        own = {"padded_tokens": columns["num_tokens"], "num_sampled": columns["num_seqs"], "chunks": None}
        defaults = {f.name: f.default for f in fields(TimedStep)}
        filled: dict[str, Any] = {
            name: _column(columns.get(name, own.get(name, defaults[name])), size, dtype)
            for name, dtype in COLUMNS.items()
        }
        return cls(**filled, origins=origins)

    @classmethod
    def of_steps(cls, steps: Iterable[TimedStep], origin: Origin | None = None) -> Samples:
        """Of single steps."""
        listed = list(steps)
        columns = {name: [getattr(step, name) for step in listed] for name in COLUMNS}
        return cls.make(origins=() if origin is None else (origin,), **columns)

    def steps(self) -> list[TimedStep]:
        """The rows as single steps: what a resumed measurement goes on from."""
        columns = [getattr(self, name).tolist() for name in COLUMNS]
        rows = (dict(zip(COLUMNS, row, strict=True)) for row in zip(*columns, strict=True))
        whole: list[dict[str, Any]] = [{n: int(v) if n in _WHOLE else v for n, v in row.items()} for row in rows]
        return [TimedStep(**row) for row in whole]

    def where(self, mask: NDArray[np.bool_] | NDArray[np.intp]) -> Samples:
        """The rows that a mask (or an array of positions) names."""
        return replace(self, **{name: getattr(self, name)[mask] for name in COLUMNS})

    @classmethod
    def concat(cls, parts: Iterable[Samples]) -> Samples:
        """All samples of several sources. Raises InputError where their devices or models differ."""
        listed = list(parts)
        columns: dict[str, Any] = {n: np.concatenate([getattr(part, n) for part in listed]) for n in COLUMNS}
        origins = tuple(origin for part in listed for origin in part.origins)
        _require_one(origins)
        return cls(**columns, origins=origins)

    def balanced_weights(self) -> Column:
        """Weights that give every regime the same say, however many rows it has; they sum to the number of regimes."""
        _, regime, counts = np.unique(self.regime, return_inverse=True, return_counts=True)
        weights: Column = 1.0 / counts[regime]
        return weights


COLUMNS: dict[str, type] = {
    "seconds": float, "host_seconds": float, "num_tokens": float, "padded_tokens": float, "num_seqs": float,
    "chunk_tokens": float, "num_chunks": float, "num_sampled": float, "decode_context": float, "chunk_pairs": float,
    "chunks": object, "decodes": object, "graph": str, "repeats": float, "spread": float,
    "source": str, "regime": str, "state": str,
}  # fmt: skip
"""Column -> its type in memory."""

_WHOLE = ("num_tokens", "padded_tokens", "num_seqs", "chunk_tokens", "num_chunks", "num_sampled", "repeats")
_ONE_OF = ("device", "model", "tensor_parallel_size", "dtype")


def _column(values: object, size: int, dtype: type) -> NDArray[Any]:
    if dtype is object:
        column = np.empty(size, dtype=object)
        if values is not None:
            column[:] = [None if v is None else _tuple(v) for v in values]  # type: ignore[attr-defined]
        return column
    return np.array(np.broadcast_to(np.asarray(values, dtype=dtype), (size,)))


def _tuple(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(tuple(v) if isinstance(v, list) else v for v in values)


def check(samples: Samples, file: str | None = None) -> None:
    """Raise InputError, with the first bad row's number, for what no step can have."""

    def require(good: NDArray[np.bool_], column: str, expected: str) -> None:
        bad = np.flatnonzero(~good)
        if bad.size:
            value = getattr(samples, column)[bad[0]]
            where = f"{column} in row {bad[0] + 1}"
            raise InputError(file=file, field=where, value=value.item(), expected=expected)

    require(np.isfinite(samples.seconds) & (samples.seconds > 0), "seconds", "a positive time")
    require(~(samples.host_seconds < 0) & ~np.isinf(samples.host_seconds), "host_seconds", "a time >= 0, or none")
    require((samples.num_tokens >= 1) & np.isfinite(samples.num_tokens), "num_tokens", "1 or more")
    require(samples.padded_tokens >= samples.num_tokens, "padded_tokens", "at least num_tokens")
    require((samples.num_seqs >= 1) & (samples.num_seqs <= samples.num_tokens), "num_seqs", "from 1 to num_tokens")
    require((samples.num_chunks >= 0) & (samples.num_chunks <= samples.num_seqs), "num_chunks", "from 0 to num_seqs")
    tokens = samples.chunk_tokens
    require((tokens >= samples.num_chunks) & (tokens <= samples.num_tokens), "chunk_tokens", "num_chunks to num_tokens")
    for name in ("decode_context", "chunk_pairs"):
        require(~(getattr(samples, name) < 0) & ~np.isinf(getattr(samples, name)), name, "a number >= 0, or none")
    require(samples.repeats >= 1, "repeats", "1 or more")
    require(np.isin(samples.graph, GRAPHS), "graph", f"one of {', '.join(map(repr, GRAPHS))}")
    require(np.isin(samples.state, STATES), "state", f"one of {', '.join(map(repr, STATES))}")


def _require_one(origins: Sequence[Origin]) -> None:
    for name in _ONE_OF:
        seen = list(dict.fromkeys(getattr(origin, name) for origin in origins))
        if len(seen) > 1:
            raise InputError(field=name, value=" and ".join(map(str, seen)), expected="samples of one, not of several")
