"""Steps as a streaming client saw them: gaps between tokens, with how many requests got one.

Not for request latencies. The one idea: while somebody decodes, every step delivers a token, so the gap between two
deliveries is one step's whole cycle, host time included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from calibrate.samples import LONE, SUSTAINED, Samples
from sim.errors import InputError

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

_COLUMNS = ("run", "step", "n", "first", "decode", "prefill_tokens", "dt_ms")

_IN_A_ROW_STEPS = 4
"""A prompt that follows another within so many steps (some 40 ms of decoding) finds the GPU still at the clocks that
the last one left: 43 instead of 40 ms for 986 tokens of Qwen3-14B on an H100."""


def read_client_steps(path: str | os.PathLike[str]) -> tuple[Samples, dict[str, float]]:
    """Samples of a CSV with columns run, step, n, first, decode, prefill_tokens, dt_ms; and what was averaged.

    The file does not say which request got which token, so every decode row is given the mean context: the mean
    prompt and half of the mean output. Gaps in which nobody decoded contain idle time and are left out.
    Raises InputError naming the missing column.
    """
    steps = pd.read_csv(path)
    for column in _COLUMNS:
        if column not in steps:
            raise InputError("missing column", file=path, field=column)
    requests = steps["first"].sum()
    prompt = float(steps["prefill_tokens"].sum() / requests)
    context = prompt + 0.5 * float(steps["decode"].sum() / requests + 1)
    lone = _since_prompt(steps) > _IN_A_ROW_STEPS
    busy = ((steps["decode"] > 0) & (steps["dt_ms"] > 0)).to_numpy()
    samples = _samples(steps[busy], lone[busy], context)
    cycle_s = float(samples.seconds.mean())
    return samples, {"mean_prompt_tokens": prompt, "mean_context_tokens": context, "mean_cycle_s": cycle_s}


def _samples(steps: pd.DataFrame, lone: NDArray[np.bool_], context: float) -> Samples:
    prompts, decode = steps["first"].to_numpy(float), steps["decode"].to_numpy(float)
    tokens = steps["prefill_tokens"].to_numpy(float)
    mixed = prompts > 0
    return Samples.make(
        num_tokens=decode + tokens,
        num_seqs=steps["n"].to_numpy(float),
        decode_context=decode * context,
        chunk_tokens=tokens,
        num_chunks=prompts,
        source="client steps",
        chunk_pairs=tokens**2 / (2 * np.maximum(prompts, 1)),
        seconds=steps["dt_ms"].to_numpy(float) / 1e3,
        regime=np.where(mixed, np.where(lone, "served, lone prompts", "served, prompts in a row"), "served, decode"),
        state=np.where(mixed & lone, LONE, SUSTAINED),
    )


def _since_prompt(steps: pd.DataFrame) -> NDArray[np.float64]:
    """Steps since the last one with a prompt, in the same run; infinite before the first."""
    position = pd.Series(np.arange(len(steps), dtype=float), index=steps.index)
    last = position.where(steps["first"] > 0).groupby(steps["run"]).transform(lambda run: run.ffill().shift(1))
    since: NDArray[np.float64] = (position - last).fillna(np.inf).to_numpy()
    return since
