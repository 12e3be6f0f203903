"""The waiting queue under vLLM's two policies. Mirrors vllm/v1/core/sched/request_queue.py (vLLM 0.32)."""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.core.config import Policy
    from sim.core.request import Request


class RequestQueue(Protocol):
    """Requests that wait, in the order in which they are considered for admission."""

    def add(self, request: Request) -> None:
        """Queue a new request."""

    def peek(self) -> Request:
        """The request that is considered next; the queue must not be empty."""

    def pop(self) -> Request:
        """Take that request out."""

    def prepend(self, request: Request) -> None:
        """Put a preempted request back."""

    def remove(self, request: Request) -> None:
        """Take out a request from anywhere in the queue."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]: ...


class FCFSQueue(deque["Request"]):
    """First come, first served; preempted requests go to the front."""

    add = deque.append
    prepend = deque.appendleft

    def pop(self) -> Request:  # type: ignore[override]  # a deque's is from the other end
        """Take out the request at the front."""
        return self.popleft()

    def peek(self) -> Request:
        """The request at the front."""
        return self[0]


class PriorityQueue:
    """By (priority, arrival time, request id as a string), the smallest first; a preempted request goes by its key."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, float, str, Request]] = []

    def add(self, request: Request) -> None:
        """Queue a request."""
        heapq.heappush(self._heap, (request.priority, request.arrival_time, request.request_id, request))

    prepend = add

    def peek(self) -> Request:
        """The request with the smallest key."""
        return self._heap[0][-1]

    def pop(self) -> Request:
        """Take out the request with the smallest key."""
        return heapq.heappop(self._heap)[-1]

    def remove(self, request: Request) -> None:
        """Take out a request from anywhere in the heap."""
        self._heap = [entry for entry in self._heap if entry[-1] is not request]
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Request]:
        return (entry[-1] for entry in sorted(self._heap, key=lambda entry: entry[:-1]))


def make_queue(policy: Policy) -> RequestQueue:
    """An empty queue under a policy."""
    return PriorityQueue() if policy == "priority" else FCFSQueue()
