"""Recompute, swap and offload side by side. `sim.compare_preemption` is `compare_preemption` of this module.

Not for running (it is a sweep) nor for files, text and pictures. The one idea: a mode is best only at a place (KV
blocks, link, max_num_seqs) and only by a figure, so an answer always names both, and by how much it leads.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from sim.config import KV_PREEMPTIONS, EngineConfig
from sim.errors import InputError, did_you_mean
from sim.host import HOST_MEMORY_GIB
from sim.latency.profile import DEFAULT_PROFILE, Profile
from sim.latency.shape import StepShape
from sim.sweeps.answers import FRONT, OBJECTIVE
from sim.sweeps.backends import all_cores, local
from sim.sweeps.settings import Setting, grid
from sim.sweeps.store import Store
from sim.sweeps.study import Study, whole_workload
from sim.sweeps.sweep import TASKS, run_study

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence
    from pathlib import Path

    from sim.sweeps.sweep import Sweep

MODE, KV, LINK, SEQS = "kv_preemption", "num_gpu_blocks_override", "pcie_bandwidth", "max_num_seqs"
PLACE = (KV, SEQS, LINK)
"""Where modes are compared. The link is the last one: without copies it does not matter."""

EVEN = 0.01
"""A lead below this share is none: profiles are not as exact."""

_OURS = {MODE: "modes", "swap_space": "host_memory_gib", "kv_offloading_size": "host_memory_gib"}
_HELD_BY_KV = ("held_by_blocks", "held_by_gate", "held_by_watermark", "held_by_preemption")


class Win(NamedTuple):
    """Which mode is best at a place, by one figure. `lead`: by how much the next one is worse, as a share; None where
    there is no other."""

    place: Mapping[str, object]
    column: str
    mode: str
    value: float
    lead: float | None

    @property
    def even(self) -> bool:
        """Whether others are as good."""
        return self.lead is not None and self.lead < EVEN


class Ceiling(NamedTuple):
    """Throughput over max_num_seqs: at most `most`, from max_num_seqs `enough` on; at the largest one `last`, which
    `limit` bounds: "max_num_seqs", "KV", or "load" where nobody waits for either."""

    setting: Mapping[str, object]
    enough: int
    most: float
    largest: int
    last: float
    peak_running: float
    preemptions: float
    limit: str

    @property
    def thrash(self) -> float:
        """The share of the throughput that is lost by letting in more."""
        return 1 - self.last / self.most


@dataclass(frozen=True, slots=True)
class PreemptionComparison:
    """What a comparison found.

    table: a row per mode and place, as a sweep's (`settings_table`), with `recompute_s` (seconds that computing again
        took, see `recompute_s`), `lost_s` (those, and the seconds that steps waited for copies), `lost_share` (of the
        run), `host_bytes` (copied both ways), `counterfactual` (bool) and `best_by` (figures by which it is best).
    wins: the best mode at each place, by each figure. ceilings: over max_num_seqs. sweep: the runs themselves.
    """

    sweep: Sweep
    table: pd.DataFrame
    wins: Sequence[Win]
    ceilings: Sequence[Ceiling]

    def save(self, folder: str | Path) -> None:
        """Write preemption.csv, .parquet, .json and .png into a folder."""
        from sim.sweeps.preemption.files import write_comparison

        write_comparison(self, folder)

    def __str__(self) -> str:
        from sim.sweeps.preemption.words import report

        return report(self)


def compare_preemption(
    trace: str | Path,
    modes: Sequence[str] = KV_PREEMPTIONS,
    config: EngineConfig | None = None,
    profile: Profile | str = DEFAULT_PROFILE,
    *,
    kv_blocks: Sequence[int] = (),
    pcie_bandwidth: Sequence[float] = (),
    max_num_seqs: Sequence[int] = (),
    host_memory_gib: float = HOST_MEMORY_GIB,
    replications: int = 1,
    out: str | Path | None = None,
    jobs: int | None = None,
    **workload: object,
) -> PreemptionComparison:
    """Replay a workload under each mode of `kv_preemption`, at each place, and say which is best where.

    kv_blocks: KV blocks of the GPU; pcie_bandwidth: GB/s one way to host memory; max_num_seqs. Empty: as the config,
    else the profile's server. host_memory_gib: what swap and offload may fill, over all GPUs. swap is a counterfactual:
    vLLM's V0 did it. trace, config, profile, `workload` and the rest: as for `sweep`. Raises InputError.
    """
    from pathlib import Path

    study = comparison_study(
        Study(
            workload=whole_workload(trace, workload),
            engine=config or EngineConfig(),
            profile=profile,
            replications=replications,
        ),
        modes,
        {KV: kv_blocks, LINK: pcie_bandwidth, SEQS: max_num_seqs},
        host_memory_gib,
    )
    store = Store(None if out is None else Path(out) / TASKS)
    return compared(run_study(study, store, local(jobs or all_cores()), {}, OBJECTIVE))


def comparison_study(
    base: Study, modes: Sequence[str], axes: Mapping[str, Sequence[Any]], host_memory_gib: float
) -> Study:
    """`base` under each mode at each place. A link is no part of a setting that copies nothing. Raises InputError."""
    for name, ours in _OURS.items():
        if getattr(base.engine, name) is not None:
            raise InputError(f"{name}: a comparison takes it from {ours}")
    for mode in modes:
        if mode not in KV_PREEMPTIONS:
            expected = f"any of {', '.join(KV_PREEMPTIONS)}{did_you_mean(mode, KV_PREEMPTIONS)}"
            raise InputError(field="modes", value=mode, expected=expected)
    grid({MODE: modes})
    for bandwidth in axes[LINK]:
        EngineConfig(pcie_bandwidth=bandwidth)  # raises for a link that carries nothing
    links = grid({LINK: axes[LINK]}) if len(axes[LINK]) else [Setting()]
    if len(axes[LINK]) and set(modes) == {"recompute"}:
        raise InputError(field=LINK, value=axes[LINK][0], expected="a mode that copies: swap or offload")
    profile = base.profile if isinstance(base.profile, Profile) else Profile.load(base.profile)
    gpus = base.engine.tensor_parallel_size or profile.tensor_parallel_size
    host = {"swap": {"swap_space": host_memory_gib / gpus}, "offload": {"kv_offloading_size": host_memory_gib}}
    settings = tuple(
        place | Setting(server={MODE: mode, **host.get(mode, {})}) | link
        for place in grid({name: axes[name] for name in (KV, SEQS) if len(axes[name])})
        for mode in modes
        for link in (links if mode in host else [Setting()])
    )
    said = {field.name: getattr(base, field.name) for field in fields(base)}
    return Study(**{**said, "settings": settings, "profile": profile})


def compared(sweep: Sweep) -> PreemptionComparison:
    """What the runs of a `comparison_study` say."""
    table = sweep.table.drop(columns=["front"])
    for name in PLACE:
        table[name] = pd.to_numeric(table[name]) if name in table else np.nan
    profile = sweep.study.profile
    assert isinstance(profile, Profile)
    table["recompute_s"] = [recompute_s(row, profile) for row in table.to_dict("records")]
    table["lost_s"] = table["recompute_s"] + table["host_copy_s"]
    table["lost_share"] = table["lost_s"] / table["duration"]
    table["host_bytes"] = table["host_bytes_out"] + table["host_bytes_in"]
    table["counterfactual"] = table[MODE] == "swap"
    best = wins(table)
    table["best_by"] = [_best_by(row, best) for row in table.to_dict("records")]
    return PreemptionComparison(sweep, table, best, ceilings(table))


def recompute_s(row: Mapping[Hashable, Any], profile: Profile) -> float:
    """Seconds that computing victims' tokens again took, by the profile's law: one victim after the other, each as a
    chunk of the mean size on top of a step with the run's mean number of decodes. What the chunk attends to beside
    itself (blocks that were still in the prefix cache) is left out.
    """
    victims, tokens = row["preemptions"], row["recomputed_tokens"]
    if not tokens:
        return 0.0
    if tokens != tokens:
        return float("nan")
    chunk, decodes = max(1, round(tokens / victims)), max(1, round(row["mean_batch"]))
    alone = StepShape(decodes, decodes, 0, 0, 0.0, decodes)
    both = StepShape(decodes + chunk, decodes + 1, 0, chunk, 0.5 * chunk * chunk, decodes + 1)
    return float(victims * (profile.law.price(both).device_s - profile.law.price(alone).device_s))


def wins(table: pd.DataFrame) -> list[Win]:
    """The best mode at each place, by throughput, ITL p99 and TTFT p99."""
    found = []
    ran = table[table["status"] == "ok"]
    for place in _places(table):
        rows = ran[_at(ran, place)]
        for column, more in FRONT:
            ordered = rows.sort_values(column, ascending=not more, kind="stable")
            if len(ordered):
                first, value = ordered.iloc[0], float(ordered[column].iloc[0])
                second = float(ordered[column].iloc[1]) if len(ordered) > 1 else None
                lead = None if second is None else abs(second / value - 1) if value else 0.0
                found.append(Win(place, column, str(first[MODE]), value, lead))
    return found


def ceilings(table: pd.DataFrame) -> list[Ceiling]:
    """Throughput over max_num_seqs, all else held, where two of them ran or more."""
    found = []
    for _, rows in table[table["status"] == "ok"].groupby([KV, MODE, LINK], sort=False, dropna=False):
        line = rows.sort_values(SEQS)
        if len(line) > 1:
            most = float(line["output_throughput"].max())
            enough = line[line["output_throughput"] >= (1 - EVEN) * most].iloc[0]
            found.append(_ceiling(line.iloc[-1].to_dict(), int(enough[SEQS]), most))
    return found


def _ceiling(last: Mapping[Hashable, Any], enough: int, most: float) -> Ceiling:
    held_by_kv = sum(last[name] for name in _HELD_BY_KV) > 0 or last["preemptions"] > 0
    limit = "max_num_seqs" if last["peak_running"] >= last[SEQS] else "KV" if held_by_kv else "load"
    return Ceiling(
        {name: last[name] for name in (KV, MODE, LINK) if last[name] == last[name]},
        enough,
        most,
        int(last[SEQS]),
        float(last["output_throughput"]),
        float(last["peak_running"]),
        float(last["preemptions"]),
        limit,
    )


def _places(table: pd.DataFrame) -> list[dict[str, object]]:
    """Each combination of the values on the axes of `PLACE`, as far as they vary."""
    values = {name: table[name].dropna().unique().tolist() for name in PLACE}
    axes = {name: several for name, several in values.items() if several}
    return [{name: setting.knobs[name] for name in axes} for setting in grid(axes)]


def _at(table: pd.DataFrame, place: Mapping[str, object]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Rows at a place; those that copy nothing are at every link."""
    here = np.ones(len(table), dtype=bool)
    for name, value in place.items():
        here &= ((table[name] == value) | (table[name].isna() if name == LINK else False)).to_numpy()
    return here


def _best_by(row: Mapping[Hashable, Any], best: Sequence[Win]) -> str:
    """Figures by which a row is best at its place, and alone so (for one without a link: at any link)."""
    columns = [
        win.column
        for win in best
        if win.mode == row[MODE]
        and not win.even
        and row["status"] == "ok"
        and all(row[name] == value or row[name] != row[name] for name, value in win.place.items())
    ]
    return ",".join(dict.fromkeys(columns))
