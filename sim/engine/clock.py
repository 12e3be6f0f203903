"""SimPy's environment with alarms at a time, not after a delay.

The one idea: a time that is reached in one wait must be the same as in many, and now + (time - now) is not always time.
Whoever waits for an alarm goes before all else of that moment, so it makes no difference when the alarm was set.
"""

from __future__ import annotations

from heapq import heappush
from typing import TYPE_CHECKING

import simpy
from simpy.events import NORMAL, URGENT

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock(simpy.Environment):
    """Simulated time in seconds."""

    def at(self, time_s: float) -> simpy.Event:
        """An event that happens at `time_s`, or now if that has passed."""
        event = simpy.Event(self)
        event._ok = True
        event._value = None
        now_s = self._now
        heappush(self._queue, (time_s if time_s > now_s else now_s, URGENT, next(self._eid), event))
        return event

    def call(self, callback: Callable[[simpy.Event], None], delay_s: float) -> None:
        """Call somebody later, with the event. Cheaper than a process, and than a timeout with a callback."""
        event = simpy.Event(self)
        event._ok = True
        event._value = None
        event.callbacks = [callback]
        heappush(self._queue, (self._now + delay_s, NORMAL, next(self._eid), event))

    def sooner(self, event: simpy.Event, time_s: float) -> simpy.Event:
        """An event of `at` for an earlier time, with everybody who waits for `event`, which nobody does from now on."""
        instead = self.at(time_s)
        instead.callbacks, event.callbacks = event.callbacks, []
        return instead
