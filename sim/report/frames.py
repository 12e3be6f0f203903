"""The record of one run, as tables: what every report reads and nothing of the report writes.

Not for: collecting it (`log`) or keeping it on disk (`tables`).
The one idea: a few frozen tables, so that any figure of any report can be traced to rows that anybody can open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sim.report.request_rows import columns_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from sim.report.gap_totals import GapTotals
    from sim.report.request_rows import RequestRows
    from sim.report.step_totals import StepTotals


@dataclass(frozen=True, slots=True)
class Itls:
    """Gaps between the streamed tokens of each request: a ragged array, one row per row of `Frames.requests`.

    Shapes: `values_s` (gaps,), seconds; `offsets` (requests + 1,), rising from 0 to `len(values_s)`.
    Row i has one gap fewer than the request has streamed tokens, as the first token's wait is its TTFT.
    """

    values_s: NDArray[np.float64]
    offsets: NDArray[np.int64]

    def row(self, i: int) -> NDArray[np.float64]:
        """The gaps of request i, in the order of its tokens, in seconds."""
        return self.values_s[self.offsets[i] : self.offsets[i + 1]]

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True)
class Frames:
    """One run.

    requests: one row per request in order of arrival. Columns: request_id, priority, arrival_s, send_s, queued_s,
        scheduled_s, first_token_s, finish_s (seconds of simulated time, NaN where it has not happened), prompt_tokens,
        output_tokens (so far), cached_tokens (hit at the first admission), preemptions, swaps (those of them that
        kept the KV in host memory), recomputed_tokens,
        status ("finished", "rejected" or "unfinished"), error.
    itls: the token gaps of each of these requests.
    steps: one row per engine step. Columns: start_s, end_s, host_s, num_tokens, num_seqs, prefill_tokens, decodes,
        sampled, running, waiting, free_blocks, admitted, preempted, hit_tokens; of all prompt chunks chunk_pairs (their
        query-key pairs), of the largest, where there is one, chunk_tokens, chunk_context (computed before) and
        chunk_row (of `requests`); num_draft_tokens (verified) and num_accepted_tokens; num_paddings (tokens that its
        CUDA graph computes for nobody) and runtime_mode (a value of GraphMode), which older runs do not have;
        extrapolated (bool), limit (what ended admission: a value of core's Limit, or "nothing").
        Where KV goes to host memory: swapped (requests that left for it), blocks_out, blocks_in, host_queries (tokens
        looked for there), host_blocks (in use), copy_s (what copies add to the step, of end_s - start_s); else all 0.
    meta: what made the run, JSON values only. The reports read, each optional: elpase_version, vllm_semantics,
        profile, seed, trace, model, label (str); flags, workload, server, config (dict); num_gpu_blocks (int, with the
        null block); max_concurrency (cap in flight, None = open loop); request_rate (requests/s, None for a trace's
        own times); burstiness; ramp_up_strategy, ramp_up_start_rps, ramp_up_end_rps (vLLM bench's flags); response_s
        (from a step's end until the client sees its tokens); partial (the run was cut short); host (dict, where KV goes
        to host memory: mode, num_blocks, block_bytes, link_busy_s, link_end_s); spec_decode (dict, where drafts are
        verified: num_drafts, num_draft_tokens, num_accepted_tokens_per_pos).
    """

    requests: pd.DataFrame
    itls: Itls
    steps: pd.DataFrame
    meta: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Digest:
    """One run of which no step and no token was kept: enough for its summary.

    requests, meta: as in `Frames`; the first is made of `rows` when it is asked for, as nothing else needs pandas.
    gaps: between tokens, of all requests; steps: all that is told of them together; most_tokens_per_s: in any whole
    second. Of a run that was cut short, gaps and tokens of unfinished requests count.
    """

    rows: RequestRows
    gaps: GapTotals
    steps: StepTotals
    most_tokens_per_s: float
    meta: Mapping[str, object]

    @property
    def requests(self) -> pd.DataFrame:
        """One row per request, in order of arrival."""
        return self.rows.frame()


def request_columns(run: Frames | Digest) -> Mapping[str, NDArray[Any]]:
    """What is a number in the table of requests, and their status, as the code that `request_rows` has for it."""
    return run.rows.columns() if isinstance(run, Digest) else columns_of(run.requests)


def refusals(run: Frames | Digest) -> list[str]:
    """Why the server refused requests, one text for each that it did."""
    if isinstance(run, Digest):
        return list(run.rows.errors.values())
    return run.requests["error"][run.requests["status"] == "rejected"].tolist()
