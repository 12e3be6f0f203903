"""Measured steps as aligned columns: what every source of timings hands to the fit.

Not for reading any source's files. The one idea: a sample is a step's totals, as in `sim.latency.StepShape`, and its
seconds; where a source gives no composition, the source says how it filled the gap.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from sim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Column = NDArray[np.float64]


SUSTAINED, LONE, KERNELS = "sustained", "lone", "kernels"


@dataclass(frozen=True, slots=True)
class Samples:
    """Steps, one per position. Tokens, sequences, query-key pairs, seconds."""

    num_tokens: Column
    num_seqs: Column
    decode_context: Column
    mixed_context: Column
    chunk_pairs: Column
    seconds: Column
    regime: NDArray[np.str_]
    """Kind of step and source, such as "served, decode": each regime weighs the same in a fit."""
    state: NDArray[np.str_]
    """What the GPU did before: "sustained" serving, which a profile is for; "lone" prompts between decodes, which find
    a cooler GPU at higher clocks; "kernels" timed one by one, without a server around them."""

    def __post_init__(self) -> None:
        bad = np.flatnonzero(~(np.isfinite(self.seconds) & (self.seconds > 0)))
        if bad.size:
            raise InputError(field="seconds", value=float(self.seconds[bad[0]]), expected="a positive time")

    def __len__(self) -> int:
        return self.seconds.size

    @classmethod
    def of(cls, rows: Iterable[tuple[float, ...]], regime: str, state: str = SUSTAINED) -> Samples:
        """From rows (tokens, sequences, decode context, mixed context, pairs, seconds) of one regime and state."""
        table = np.array(list(rows), dtype=np.float64).reshape(-1, 6)
        size = len(table)
        tokens, seqs, context, mixed, pairs, seconds = table.T
        return cls(tokens, seqs, context, mixed, pairs, seconds, np.full(size, regime), np.full(size, state))

    @classmethod
    def concat(cls, parts: Iterable[Samples]) -> Samples:
        """All samples of several sources."""
        listed = list(parts)
        return cls(*(np.concatenate([getattr(part, f.name) for part in listed]) for f in fields(cls)))

    def balanced_weights(self) -> Column:
        """Weights that give every regime the same say, however many rows it has; they sum to the number of regimes."""
        _, regime, counts = np.unique(self.regime, return_inverse=True, return_counts=True)
        weights: Column = 1.0 / counts[regime]
        return weights
