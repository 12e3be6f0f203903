"""A study: what is swept, over what, measured how; and its runs, one task for each setting and replication.

Not for where tasks run (`backends`) nor for what their results say together (`table`, `answers`). The one idea:
replication r of every setting takes the seed `seed + r`, and each part of a workload has its own stream of random
numbers, so all settings are asked the same questions and their differences are due to the settings.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.config import EngineConfig
from sim.errors import InputError
from sim.host import require_link_used
from sim.latency.profile import DEFAULT_PROFILE, Profile
from sim.sweeps.settings import Setting
from sim.sweeps.task import Measure, Task
from sim.workload import ANY_TRACE, GOES_WITH
from workloads import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from sim.engine.pricing import OutsidePolicy
    from sim.sweeps.backends import Backend
    from sim.sweeps.store import Store

    Counting = Callable[[int], AbstractContextManager[Callable[[], None]]]

MOST_REPLICATIONS = 10_000
"""Far more than any interval needs: a slip of the hand would plan them all."""

_ENGINE = {flag.name for flag in fields(EngineConfig)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Settings on top of what stays the same: `workload` (every flag, see `whole_workload`), `engine`, `profile`.

    In the workload's `trace`, `{seed}` stands for the replication's seed: a file for each.
    """

    workload: Mapping[str, Any]
    settings: tuple[Setting, ...] = (Setting(),)
    engine: EngineConfig = field(default_factory=EngineConfig)
    profile: Profile | str = DEFAULT_PROFILE
    replications: int = 1
    measure: Measure = field(default_factory=Measure)
    outside: OutsidePolicy = "warn"

    def __post_init__(self) -> None:
        if not self.settings:
            raise InputError("nothing varies: the grid is empty")
        told = Counter(repr(setting.told.knobs) for setting in self.settings)
        for one, times in told.items():
            if times > 1:
                raise InputError(f"two settings are the same, or differ only in a file's folder: {one}")
        if not 1 <= self.replications <= MOST_REPLICATIONS:
            expected = f"from 1 to {MOST_REPLICATIONS}"
            raise InputError(field="replications", value=self.replications, expected=expected)
        held = {name: getattr(self.engine, name) for name in _ENGINE}
        require_link_used({**held, **setting.knobs} for setting in self.settings)

    def tasks(self, setting: Setting) -> list[Task]:
        """One task for each replication of a setting. Raises InputError and TraceError where it cannot run."""
        knobs = setting.knobs
        engine = self._engine(setting)
        profile = knobs.get("profile", self.profile)
        loaded = profile if isinstance(profile, Profile) else Profile.load(str(profile))
        client = {name: value for name, value in knobs.items() if name in self.workload}
        return [
            Task.of(engine, self._seeded(client, replication), loaded, self.measure, self.outside)
            for replication in range(self.replications)
        ]

    def notes(self) -> list[str]:
        """What does nothing in any setting that can run: beside some of the others it may be at work."""
        told: list[tuple[str, ...]] = []
        for setting in self.settings:
            with suppress(InputError):  # told where it is run
                told.append(self._engine(setting).notes())
        return [note for note in told[0] if all(note in notes for notes in told)] if told else []

    def _engine(self, setting: Setting) -> EngineConfig:
        return replace(self.engine, **{name: value for name, value in setting.knobs.items() if name in _ENGINE})

    def _seeded(self, client: Mapping[str, Any], replication: int) -> dict[str, Any]:
        workload = {**self.workload, **client}
        seed = workload["seed"] + replication
        return {**workload, "seed": seed, "trace": str(workload["trace"]).replace("{seed}", str(seed))}


class Outcome(NamedTuple):
    """What became of one replication of a setting."""

    status: str
    """`ok`; `skipped`: an impossible combination; `failed`; `not run`: the sweep ended before."""
    summary: Mapping[str, Any] | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str | None) -> Outcome:
        """From a task's result; None: it was not run."""
        if text is None:
            return cls("not run")
        result = json.loads(text)
        if "error" in result:
            return cls("failed", reason=result["error"])
        return cls("ok", result["summary"], notes=tuple(result["notes"]))


def whole_workload(trace: object, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Every flag of a workload: those given, and what the others are when nobody says them. Raises InputError."""
    names: dict[str, Any] = {**dict.fromkeys(GOES_WITH), **ANY_TRACE}
    for unknown in sorted(flags.keys() - names.keys()):
        raise InputError(field="workload", value=unknown, expected=f"flags of a workload: {', '.join(names)}")
    return {"trace": str(trace), **names, **flags}


def outcomes(
    study: Study,
    settings: Iterable[Setting],
    store: Store,
    backend: Backend,
    counting: Counting,
) -> list[list[Outcome]]:
    """Each setting's replications, run where the store does not have them yet.

    `counting` is entered with how many are to run, and yields what to call for each that is done. On KeyboardInterrupt
    and OSError what has been done is in the store.
    """
    planned = [_planned(study, setting) for setting in settings]
    wanted = {task.key: task for tasks in planned if isinstance(tasks, list) for task in tasks}
    todo = [task for key, task in wanted.items() if store.get(key) is None]
    failed: dict[str, str] = {}
    with counting(len(todo)) as advance:
        for task, text in backend(todo) if todo else ():
            if "error" in json.loads(text):
                failed[task.key] = text  # not kept: the next sweep tries again
            else:
                store.put(task.key, text)
            advance()
    return [
        [Outcome("skipped", reason=tasks)] * study.replications
        if isinstance(tasks, str)
        else [Outcome.of(store.get(task.key) or failed.get(task.key)) for task in tasks]
        for tasks in planned
    ]


def _planned(study: Study, setting: Setting) -> list[Task] | str:
    """The tasks, or why the combination is impossible."""
    try:
        return study.tasks(setting)
    except (InputError, TraceError) as error:
        return str(error)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
