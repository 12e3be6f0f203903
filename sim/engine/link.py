"""The PCIe link between a GPU and its host's memory, on which KV blocks are copied.

Two ways, out to the host and in to the GPU. On each, copies are served one after another in the order in which they
were handed over (as CUDA streams that wait for each other do); while both ways are busy they share what the link
carries both ways together. The one idea: a copy is a flow, so the link needs looking at only when one starts to flow
or ends.

Not a `simpy.Resource`: copies start when steps do, which is known when a step is decided, so that their ends can be
worked out at once, and nobody waits in a process of its own.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.host import HostLink


class Way(enum.Enum):
    """Where blocks go."""

    OUT = "to the host"
    IN = "to the GPU"


@dataclass(slots=True, eq=False)
class Copy:
    """Blocks on their way: how long until they flow, how many bytes are still to flow."""

    wait_s: float
    left_bytes: float
    end_s: float | None = None
    """When it has ended; None before."""


class Link:
    """The copies of one GPU. Hand them over in the order of their starts."""

    def __init__(self, spec: HostLink) -> None:
        self.spec = spec
        self.busy_s = 0.0
        """Seconds in which anything was copied."""
        self._queues: dict[Way, deque[Copy]] = {way: deque() for way in Way}
        self._now_s = 0.0

    @property
    def worked_out_s(self) -> float:
        """How far its copies have been worked out: the last one's end, when all are over."""
        return self._now_s

    def copy(self, way: Way, num_blocks: int, start_s: float) -> Copy:
        """Copy blocks, from `start_s` or when the way is free after that."""
        self.advance(start_s)
        self._now_s = max(self._now_s, start_s)
        copy = Copy(self.spec.latency_s, float(num_blocks * self.spec.block_bytes))
        self._queues[way].append(copy)
        return copy

    def end_of(self, copy: Copy) -> float:
        """When a copy ends. Nothing may be handed over for a time before that."""
        while copy.end_s is None:
            self._flow(float("inf"))
        return copy.end_s

    def next_end_s(self) -> float:
        """When the next copy ends, if none is handed over until then; there must be one."""
        twin = Link(self.spec)
        twin._now_s = self._now_s
        twin._queues = {way: deque(replace(copy) for copy in queue) for way, queue in self._queues.items()}
        heads = [queue[0] for queue in twin._queues.values() if queue]
        while all(copy.end_s is None for copy in heads):
            twin._flow(float("inf"))
        return twin._now_s

    def advance(self, until_s: float) -> None:
        """Let time pass."""
        while self._now_s < until_s and any(self._queues.values()):
            self._flow(until_s)

    def _flow(self, until_s: float) -> None:
        """Go on to where a copy starts to flow or ends, or until then."""
        heads = [queue[0] for queue in self._queues.values() if queue]
        rate = self._bytes_per_s(sum(not copy.wait_s for copy in heads))
        # Compared as times, not as durations: a time that was told must be reached by going there.
        turns_s = {copy: self._now_s + (copy.wait_s or copy.left_bytes / rate) for copy in heads}
        then_s = min(until_s, *turns_s.values())
        passed_s = then_s - self._now_s
        self._now_s = then_s
        self.busy_s += passed_s
        for copy in heads:
            is_over = turns_s[copy] <= then_s
            if copy.wait_s:
                copy.wait_s = 0.0 if is_over else copy.wait_s - passed_s
            else:
                copy.left_bytes = 0.0 if is_over else copy.left_bytes - rate * passed_s
        for queue in self._queues.values():
            if queue and not queue[0].wait_s and not queue[0].left_bytes:
                queue.popleft().end_s = then_s

    def _bytes_per_s(self, num_flowing: int) -> float:
        """What each of one or two flows gets."""
        spec = self.spec
        return min(spec.bytes_per_s, spec.both_bytes_per_s / 2) if num_flowing > 1 else spec.bytes_per_s
