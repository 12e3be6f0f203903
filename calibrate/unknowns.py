"""What samples with totals only leave open, how it is filled, and how that is told.

Not for the fit itself. The one idea: an iteration log counts tokens but not contexts, so a mean context per decode row
is one more unknown where other samples fix what context costs, and is nobody's to find where none do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sim.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from calibrate.samples import Column, Samples

CONTEXT_OF = "mean context, "
"""Prefix of an unknown: the mean context of a source's decode rows."""


def latent_sources(samples: Samples) -> list[str]:
    """Sources whose contexts are unknown, where other samples tell what context costs."""
    unknown = np.isnan(samples.decode_context)
    if not (samples.decode_context[~unknown] > 0).any():
        return []
    return sorted(set(samples.source[unknown].tolist()))


def fill(samples: Samples, values: Mapping[str, float]) -> Samples:
    """Samples without NaN: contexts by a source's mean (0 where `values` has none), prompts as equal and without
    context."""
    no_context, no_pairs = np.isnan(samples.decode_context), np.isnan(samples.chunk_pairs)
    if not no_context.any() and not no_pairs.any():
        return samples
    mean = np.array([values.get(CONTEXT_OF + source, 0.0) for source in samples.source])
    equal = samples.chunk_tokens**2 / (2 * np.maximum(samples.num_chunks, 1))
    return replace(
        samples,
        decode_context=np.where(no_context, samples.num_decodes * mean, samples.decode_context),
        chunk_pairs=np.where(no_pairs, equal, samples.chunk_pairs),
    )


def with_mean_context(samples: Samples, tokens: float) -> Samples:
    """Samples whose unknown contexts are all `tokens` long."""
    context: Column = np.where(np.isnan(samples.decode_context), samples.num_decodes * tokens, samples.decode_context)
    return replace(samples, decode_context=context)


def _do(steps: NDArray[np.bool_]) -> str:
    return "does" if steps.sum() == 1 else "do"


def statements(samples: Samples) -> dict[str, str]:
    """What nobody can read out of these samples, and what stands in its place."""
    told: dict[str, str] = {}
    unknown = np.isnan(samples.decode_context)
    if unknown.any():
        sources = ", ".join(sorted(set(samples.source[unknown].tolist())))
        told["contexts"] = (
            f"{sources}: {unknown.sum():,} of {counted(len(samples), 'step')} {_do(unknown)} not say how long contexts"
            " were. "
            + (
                "Their mean per decode row was fitted as one number per source; other samples fix what context costs"
                if latent_sources(samples)
                else "context_s and mixed_context_s cannot be found and are 0: row_s holds the KV reads of the mean"
                " context of these steps, longer or shorter contexts are priced the same, and so are decodes beside"
                " chunks"
            )
        )
    pairs = np.isnan(samples.chunk_pairs)
    if pairs.any():
        told["prompt attention"] = (
            f"{counted(pairs.sum(), 'step')} {_do(pairs)} not say how {'its' if pairs.sum() == 1 else 'their'} prompt"
            " tokens split into chunks or what was before them: equal chunks without context were"
            " assumed, so pair_s is an upper estimate where prompts were chunked"
        )
    host = np.isfinite(samples.host_seconds)
    served = samples.state != "kernels"
    untold = ~host & served
    if not host[served].any():
        told["host"] = "no step tells the host's time apart: host_step_s and host_row_s are 0, step_s and row_s hold it"
    elif not host[served].all():
        told["host"] = (
            f"{counted(untold.sum(), 'step')} {_do(untold)} not tell the host's time apart:"
            f" {'it was' if untold.sum() == 1 else 'they were'} taken as device time"
        )
    if not (samples.mixed_context > 0).any():
        told["mixed steps"] = "no step has chunks beside decodes: mixed_context_s is 0, what a mixture adds is unknown"
    if not (samples.chunk_tokens > 0).any():
        told["prompts"] = "no step has a chunk: pair_s is 0 and prompts are priced from decodes alone"
    return told
