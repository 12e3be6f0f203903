"""A whole sweep: run what is missing, make the table, ask it everything. `sim.sweep` is `sweep` of this module.

Not for files (`files`) nor for flags. The one idea: results are kept as they come, and all that is said of them is made
from what is kept, at the end, in the settings' order; so neither chance nor a kill shows in it.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim import __version__
from sim.errors import InputError
from sim.experiment import VLLM_SEMANTICS
from sim.latency.profile import DEFAULT_PROFILE, Profile
from sim.sweeps.answers import OBJECTIVE, best_by_load, crossings, front, objective, parse_slo, sensitivity, within
from sim.sweeps.backends import all_cores, local
from sim.sweeps.capacity import best_capacity, capacities
from sim.sweeps.settings import combined, grid
from sim.sweeps.store import Store
from sim.sweeps.study import Study, outcomes, whole_workload
from sim.sweeps.table import runs_table, settings_table
from sim.sweeps.task import Measure
from sim.sweeps.words import report
from sim.workload import file_name, traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import pandas as pd

    from sim.config import EngineConfig
    from sim.sweeps.answers import Best, Crossing, Effect
    from sim.sweeps.backends import Backend
    from sim.sweeps.capacity import Capacity
    from sim.sweeps.settings import Setting
    from sim.sweeps.study import Outcome
    from sim.sweeps.task import Task

    Stages = Callable[[str, int], AbstractContextManager[Callable[[], None]]]

TASKS = "tasks"
"""The folder inside `out` that keeps results."""

_SAME_EACH_TIME = "the same whatever the seed: nothing here is drawn, so replications and their intervals say nothing"


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep found.

    table: one row per setting (see `settings_table`), with `front` (bool) and, with bounds, `slo` (bool).
    runs: one row per setting and replication (see `runs_table`). axes: each knob's values, in order (None: not said).
    capacities: with bounds, the highest rate of each setting. effects: what each knob does.
    bests, crossings: the best setting at each load, by `objective`, and where it changes.
    results: each setting's replications, as they came. partial: the sweep was ended early.
    """

    study: Study
    table: pd.DataFrame
    runs: pd.DataFrame
    results: Sequence[Sequence[Outcome]]
    axes: Mapping[str, Sequence[object]]
    objective: str
    slo: Mapping[str, float]
    capacities: Sequence[Capacity] = ()
    effects: Sequence[Effect] = ()
    bests: Sequence[Best] = ()
    crossings: Sequence[Crossing] = ()
    partial: bool = False

    @property
    def best(self) -> Capacity | None:
        """The setting that stays within the bounds at the highest rate."""
        return best_capacity(self.capacities)

    def save(self, folder: str | Path) -> None:
        """Write sweep.csv, .parquet, .json and .png, and vLLM's layout, into a folder."""
        from sim.sweeps.files import write_sweep

        write_sweep(self, Path(folder))

    def __str__(self) -> str:
        return report(self)

    @property
    def provenance(self) -> dict[str, object]:
        """What made it: versions, trace, profile, seed; a knob's values are in the table."""
        profile = self.study.profile
        return {
            "elpase_version": __version__,
            "vllm_semantics": VLLM_SEMANTICS,
            "trace": traffic(self.study.workload)["trace"],
            "profile": profile.name if isinstance(profile, Profile) else file_name(profile),
            "seed": self.study.workload["seed"],
        }

    @property
    def notes(self) -> list[str]:
        """What the runs had to say, each line once, in order."""
        told = dict.fromkeys(note for each in self.results for one in each for note in one.notes)
        return [*told, *([_SAME_EACH_TIME] if self._drawn_nothing else [])]

    @property
    def _drawn_nothing(self) -> bool:
        numbers = self.runs.drop(columns=["seed"])
        ran = numbers[numbers["status"] == "ok"]
        return (
            len(ran) > ran["setting"].nunique() and len(ran.astype(str).drop_duplicates()) == ran["setting"].nunique()
        )


def sweep(
    trace: str | Path,
    vary: Mapping[str, Sequence[object]],
    config: EngineConfig | None = None,
    profile: Profile | str = DEFAULT_PROFILE,
    *,
    replications: int = 1,
    slo: Mapping[str, float] | None = None,
    goodput: Mapping[str, float] | None = None,
    best: str = OBJECTIVE,
    warmup_s: float = 0.0,
    cooldown_s: float = 0.0,
    out: str | Path | None = None,
    jobs: int | None = None,
    backend: Backend | None = None,
    **workload: object,
) -> Sweep:
    """Try every combination of `vary` and return one table, and what it says.

    trace: a file, a built-in workload or a data set's name; `workload`: its flags, as `elpase replay` takes them
        (`limit=400`, `request_rate=8.0`, `seed=1`). vary: knob -> values; a knob is any field of `EngineConfig`, any
        flag of the workload, `trace`, or `profile`. config, profile: what stays the same, as for `simulate`.
    replications: runs of each setting, on the seeds `seed`, `seed` + 1, ..., the same for all settings.
    slo: bounds in ms, {"ttft_p99": 2000, "itl_p99": 50}: gives `slo`, `capacities` and `best`.
    goodput: bounds per request in ms for any of ttft, tpot, e2el, as `vllm bench serve --goodput`.
    best: the column by which a setting is best at a load. warmup_s, cooldown_s: seconds cut off both ends of a run.
    out: a folder that keeps each result, so that the same call goes on after a kill; `save` writes the tables there.
    jobs: processes (all cores); backend: `ray_cluster(address)`, in place of them.

    Ctrl-C ends the sweep early: what is there is returned, and says `partial`. Raises InputError for a knob that does
    not exist and for an empty grid; a combination that cannot run is a row that says why.
    """
    from sim.config import EngineConfig

    study = Study(
        workload=whole_workload(trace, workload),
        settings=combined(grid({name: [_plain(value) for value in values] for name, values in vary.items()})),
        engine=config or EngineConfig(),
        profile=profile,
        replications=replications,
        measure=Measure(dict(goodput or {}), warmup_s, cooldown_s),
    )
    bounds = parse_slo([f"{name}={bound}" for name, bound in (slo or {}).items()])
    store = Store(None if out is None else Path(out) / TASKS)
    return run_study(study, store, backend or local(jobs or all_cores()), bounds, best)


def run_study(
    study: Study,
    store: Store,
    backend: Backend,
    slo: Mapping[str, float],
    best: str = OBJECTIVE,
    stages: Stages | None = None,
) -> Sweep:
    """`sweep` for a study in hand. `stages` is entered with a stage's name and how many runs it has, and yields what to
    call for each that is done. Raises InputError where no setting can run.
    """
    objective(best)

    def run(settings: Iterable[Setting], by: Backend = backend, stage: str = "sweep") -> list[list[Outcome]]:
        return outcomes(study, settings, store, by, lambda n: (stages or _silent)(stage, n))

    partial, found = False, []
    try:
        results = run(study.settings)
        if slo and any(one.status == "ok" for each in results for one in each):
            found = capacities(study, slo, lambda settings: run(settings, stage="highest rates"))
    except KeyboardInterrupt:
        partial, results = True, run(study.settings, _nobody)
    told = _told(study, results, slo, best, found, partial)
    _require_something(told)
    return told


def _require_something(sweep: Sweep) -> None:
    """Raise InputError with the first reason where every combination fails: then it is the question that is wrong."""
    if set(sweep.table["status"]) <= {"skipped", "failed"}:
        reasons = list(dict.fromkeys(sweep.table["reason"]))
        raise InputError(reasons[0] if len(reasons) == 1 else f"no combination can run; the first: {reasons[0]}")


def _told(
    study: Study,
    results: Sequence[Sequence[Outcome]],
    slo: Mapping[str, float],
    best: str,
    found: Sequence[Capacity],
    partial: bool,
) -> Sweep:
    settings = [setting.told for setting in study.settings]
    axes = axes_of(settings)
    runs = runs_table(settings, results, study.workload["seed"])
    table = settings_table(settings, runs)
    table["front"] = front(table) if (table["status"] == "ok").any() else False
    if slo:
        table["slo"] = [within(row, slo) for row in table.to_dict("records")]
    bests = best_by_load(table, runs, axes, best)
    return Sweep(
        study=study,
        table=table,
        runs=runs,
        results=results,
        axes=axes,
        objective=best,
        slo=slo,
        capacities=found,
        effects=sensitivity(table, axes),
        bests=bests,
        crossings=crossings(table, bests, axes, best),
        partial=partial,
    )


def axes_of(settings: Sequence[Setting]) -> dict[str, list[Any]]:
    """Each knob's values, None for where a setting does not say it."""
    axes: dict[str, list[Any]] = {name: [] for setting in settings for name in setting.knobs}
    for setting in settings:
        for name, known in axes.items():
            value = setting.knobs.get(name)
            if value not in known:
                known.append(value)
    return axes


def _nobody(_tasks: Sequence[Task]) -> Iterator[tuple[Task, str]]:
    return iter(())


def _silent(_stage: str, _total: int) -> AbstractContextManager[Callable[[], None]]:
    return nullcontext(lambda: None)


def _plain(value: object) -> object:
    """A number of numpy's as Python's own."""
    item = getattr(value, "item", None)
    return item() if callable(item) else value
