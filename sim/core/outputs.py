"""The scheduler's other half: what the model sampled is taken in.

Not for deciding steps (scheduler.py). Mirrors `update_from_output` of vllm/v1/core/sched/scheduler.py (vLLM 0.32).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.core.request import FINISHED

if TYPE_CHECKING:
    from sim.core.cohort import Cohort
    from sim.core.request import Request
    from sim.core.step import StepOutcome, StepPlan


class Outputs:
    """Tokens of running requests grow, and some finish."""

    cohort: Cohort

    def commit(self, plan: StepPlan, outcome: StepOutcome) -> list[Request]:
        """Take in what the model sampled; returns the requests that finished, in the plan's order."""
        if not plan.requests:
            return []
        if outcome.stopped:
            self.cohort.dissolve()  # who stops early was not known ahead
        settled, finished = self.commit_cohort()
        for position in range(settled, len(plan.requests)):
            request, sampled = plan.requests[position], outcome.num_sampled[position]
            # Aborted while the step ran: its output has nowhere to go. In the cohort: it has had its output.
            if sampled and request.joined is None and not request.is_finished:
                if position in plan.num_drafts:
                    self._reject_drafts(request, plan.num_drafts[position] - (sampled - 1))
                if self._take_output(request, sampled, outcome.stopped.get(position)):
                    finished.append(request)
        if outcome.num_new_drafts is not None:
            for request, drafts in zip(plan.requests, outcome.num_new_drafts, strict=True):
                # A drafter may propose for prompts in flight too; nobody verifies that.
                request.num_draft_tokens = 0 if request.is_prefill_chunk else drafts
        return finished

    def commit_round(self, requests: list[Request]) -> list[Request]:
        """`commit` of a step that gave each of these one token."""
        settled, finished = self.commit_cohort()
        for request in requests[settled:]:
            if request.joined is None and not request.is_finished and self._take_output(request, 1, None):
                finished.append(request)
        return finished

    def commit_cohort(self) -> tuple[int, list[Request]]:
        """The output of the oldest step is back for the cohort: how many rows that was, and who finished."""
        return self.cohort.commit(), self.end_members()

    def end_members(self) -> list[Request]:
        """An output is back for those of the cohort whose last one is on its way; who finished."""
        finished: list[Request] = []
        for request in self.cohort.ending[:]:
            if self._take_output(request, 1, None):
                finished.append(request)  # noqa: PERF401  # few or none
        return finished

    def _take_output(self, request: Request, sampled: int, stop_at: int | None) -> bool:
        """A request's tokens are back, one of them perhaps a stop token; whether it is finished."""
        kept, left = sampled if stop_at is None else stop_at, request.final_num_tokens - request.num_tokens
        if kept > left:
            kept = left
        self._append_tokens(request, kept)
        if stop_at != kept and request.num_tokens < request.final_num_tokens:
            return False
        self._drop(request)
        request.status = FINISHED
        return True

    def _reject_drafts(self, request: Request, rejected: int) -> None:
        """Rejected drafts were computed in vain; blocks that they filled stay with the request.

        Of a stale output (see `AsyncScheduler`) nothing is left that could be taken back.
        """
        if request.keeps_kv:
            request.num_computed_tokens -= rejected
            if request.num_output_placeholders:
                request.num_output_placeholders -= rejected

    def _append_tokens(self, request: Request, n: int) -> None:
        request.num_tokens += n

    def _drop(self, request: Request) -> None:
        """It leaves."""
        raise NotImplementedError
