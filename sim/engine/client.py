"""The client side: when requests are sent, and what of their latency is not the server's.

Open loop: a request is sent at its arrival time. With a cap in flight (vLLM bench's `--max-concurrency`) it is sent at
max(its arrival, a slot frees), in order. A session's turn (`Request.after`) is sent when the answer that it waits for
has been read and thought about.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from sim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    import simpy

    from sim.engine.clock import Clock
    from sim.latency.profile import ClientTerms
    from sim.report.log import RunLog
    from workloads import Request


class Client:
    """Sends a workload to one replica."""

    def __init__(
        self,
        env: Clock,
        requests: Iterable[Request],
        terms: ClientTerms,
        log: RunLog,
        max_in_flight: int | None,
    ) -> None:
        self._env = env
        self._requests = requests
        self._submit: Callable[[int, Request], None]
        self._terms = terms
        self._log = log
        self._is_capped = max_in_flight is not None
        self._free_slots = inf if max_in_flight is None else max_in_flight
        self._slot_freed: simpy.Event | None = None
        self._on_their_way_s: list[float] = []
        """A heap: when requests that have been sent reach the engine."""
        self._next_s = inf
        """When the one does that is sent next."""
        self._answered: dict[str, float] = {}
        """Request id -> when its answer was read, of requests that have an `output_content` to go on from."""
        self._continued: set[str] = set()
        """Ids of requests that have such an `output_content`: those that turns may follow."""
        self._turns: dict[str, list[tuple[int, Request]]] = {}
        """Request id -> turns that wait for its answer."""

    def send_to(self, submit: Callable[[int, Request], None]) -> None:
        """Start. `submit(row, request)` is called when a request reaches the engine's queue."""
        self._submit = submit
        self._env.process(self._send_all())

    @property
    def next_submit_s(self) -> float:
        """When somebody reaches the engine, unless turns, answers or a shorter prompt behind it bring one sooner."""
        on_their_way_s, next_s = self._on_their_way_s, self._next_s
        return on_their_way_s[0] if on_their_way_s and on_their_way_s[0] < next_s else next_s

    def awaits(self, request: Request) -> bool:
        """The request's answer changes what is sent next, so `answered` must be called."""
        return self._is_capped or request.output_content is not None

    def answered(self, request: Request) -> None:
        """The client has read a request's last token (or its refusal): its slot is free, its next turn can start."""
        self._free_slots += 1
        if self._slot_freed is not None:
            self._slot_freed.succeed()
            self._slot_freed = None
        if request.output_content is not None:
            self._answered[request.request_id] = self._env.now
        for row, turn in self._turns.pop(request.request_id, ()):
            self._env.process(self._next_turn(row, turn, self._env.now))

    def _send_all(self) -> Generator[simpy.Event]:
        env = self._env
        now_s = env.now
        for row, request in enumerate(self._requests):
            self._log.arrived(request)
            if request.output_content is not None:
                self._continued.add(request.request_id)
            if request.after is not None:
                self._hold(row, request)
                continue
            if request.arrival_s > now_s:
                self._next_s = request.arrival_s + self._path_s(request)
                yield env.timeout(request.arrival_s - now_s)
                self._next_s, now_s = inf, env.now
            if self._free_slots < 1:
                yield from self._wait_for_slot()
                now_s = env.now
            self._send(row, request, now_s)

    def _hold(self, row: int, request: Request) -> None:
        assert request.after is not None
        if request.after not in self._continued:
            expected = f"an earlier request with an output_content for request {request.request_id} to follow"
            raise InputError(field="after", value=request.after, expected=expected)
        if request.after in self._answered:
            self._env.process(self._next_turn(row, request, self._answered[request.after]))
        else:
            self._turns.setdefault(request.after, []).append((row, request))

    def _next_turn(self, row: int, request: Request, answered_s: float) -> Generator[simpy.Event]:
        due_s = max(request.arrival_s, answered_s + request.think_s)
        yield self._env.timeout(max(0.0, due_s - self._env.now))
        self._log.due(row, self._env.now)
        yield from self._wait_for_slot()
        self._send(row, request, self._env.now)

    def _wait_for_slot(self) -> Generator[simpy.Event]:
        while self._free_slots < 1:
            if self._slot_freed is None:
                self._slot_freed = self._env.event()
            yield self._slot_freed

    def _send(self, row: int, request: Request, now_s: float) -> None:
        self._free_slots -= 1
        self._log.sent(row, now_s)
        path_s = self._path_s(request)
        heappush(self._on_their_way_s, now_s + path_s)

        def reach(_: simpy.Event) -> None:
            heappop(self._on_their_way_s)
            self._submit(row, request)

        # No process per request: a call is an event, a process would be three.
        self._env.call(reach, path_s)

    def _path_s(self, request: Request) -> float:
        """From the client to the engine."""
        return self._terms.request_s + self._terms.request_token_s * request.prompt_tokens
