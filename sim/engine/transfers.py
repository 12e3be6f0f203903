"""KV blocks that move beside the steps: when each transfer starts, and when the scheduler is told of its end.

As vLLM's worker does it (0.32, distributed/kv_transfer/kv_connector/v1/offloading/worker.py and v1/worker/
kv_connector_model_runner_mixin.py):

    device   | step k           | step k+1         | step k+2
    link                        | loads of k ... | stores of k ...
    host       polled for k       polled for k+1     polled for k+2: the loads of k are over, told when k+2 ends

Loads start when their step has run. Stores are handed over with the next step, so as not to delay this one's output.
A step asks what is over when it is handed to the device, and its output brings the answer. Without steps the host only
asks, again and again. The one idea: the link knows when copies end, this file when somebody looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.engine.link import Way

if TYPE_CHECKING:
    from sim.core.step import StepPlan, Transfer
    from sim.engine.link import Copy, Link


class Transfers:
    """The open transfers of one replica."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._copies: dict[int, Copy] = {}
        self._held_back: list[Transfer] = []
        """Stores of the last step."""

    def before_step(self, plan: StepPlan, start_s: float) -> float:
        """Copies that the device waits for; returns when it can compute."""
        if self._held_back:
            self.start_stores(start_s)
        if not (plan.flushes or plan.swapped_out or plan.swapped_in):
            return start_s
        # One that is not there is over, only that the scheduler has not been told yet.
        waited_for = [self._copies[number] for number in plan.flushes if number in self._copies]
        ready_s = [start_s, *(self.link.end_of(copy) for copy in waited_for)]
        for way, swapped in ((Way.OUT, plan.swapped_out), (Way.IN, plan.swapped_in)):
            if swapped:  # one batch each way
                copy = self.link.copy(way, sum(blocks for _, blocks in swapped), start_s)
                ready_s.append(self.link.end_of(copy))
        return max(ready_s)

    def after_step(self, plan: StepPlan, end_s: float) -> None:
        """What the step leaves to copy beside the next ones."""
        for number, num_blocks in plan.loads:
            self._copies[number] = self.link.copy(Way.IN, num_blocks, end_s)
        self._held_back += plan.stores

    def start_stores(self, now_s: float) -> None:
        """Start the stores of the last step."""
        for number, num_blocks in self._held_back:
            self._copies[number] = self.link.copy(Way.OUT, num_blocks, now_s)
        self._held_back.clear()

    def ended_by(self, now_s: float) -> list[int]:
        """Transfers that are over, and nobody has been told of."""
        if not self._copies:
            return []
        self.link.advance(now_s)
        ended = [n for n, copy in self._copies.items() if copy.end_s is not None and copy.end_s <= now_s]
        for number in ended:
            del self._copies[number]
        return ended

    def next_end_s(self) -> float | None:
        """When the next transfer ends, if none starts until then; None where none is open."""
        if not self._copies:
            return None
        ends_s = [copy.end_s for copy in self._copies.values() if copy.end_s is not None]
        return min(ends_s) if ends_s else self.link.next_end_s()
