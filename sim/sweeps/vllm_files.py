"""`vllm bench sweep serve`'s files: its parameter files read, its folder of results written, for its own plots.

Not for our own tables (`files`). The one idea: the layout is vLLM's to the letter, so `vllm bench sweep plot` and
`plot_pareto` do not know the difference. Source: vLLM 0.32, benchmarks/sweep/{param_sweep,serve,plot}.py.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pandas as pd

from sim.errors import InputError
from sim.json_file import read_json
from sim.sweeps.settings import CLIENT_KNOBS, NAME, SERVER_KNOBS, Setting, knob, underscored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from sim.sweeps.study import Outcome

_LONGEST_NAME = 200
"""A folder's name; file systems take 255 bytes."""


def read_params(
    path: Path, half: str, value: Callable[[str, object], object] = lambda _name, value: value
) -> list[Setting]:
    """The settings of a `--serve-params` (`half` "server") or `--bench-params` ("client") file.

    A list of records, or an object of named ones. `value` turns a knob's JSON value into ours. Raises InputError.
    """
    document = read_json(path)
    if isinstance(document, dict):
        if not all(isinstance(params, dict) for params in document.values()):
            raise InputError(file=path, value=document, expected="an object of records, each under its name")
        document = [{NAME: name, **params} for name, params in document.items()]
    if not isinstance(document, list) or not all(isinstance(record, dict) for record in document):
        raise InputError(file=path, value=document, expected="a list of records")
    if not document:
        raise InputError("the grid is empty", file=path)
    names = [record[NAME] for record in document if NAME in record]
    for name in names:
        if names.count(name) > 1:
            raise InputError(file=path, field=NAME, value=name, expected="each name once")
    return [_setting(path, record, half, value) for record in document]


def linked(settings: Sequence[Setting], pairs: Sequence[str]) -> list[Setting]:
    """The settings in which knobs of the two halves are equal: `max_num_seqs=max_concurrency` (`--link-vars`)."""
    for pair in pairs:
        mine, found, other = pair.partition("=")
        if not found:
            raise InputError(field="--link-vars", value=pair, expected="SERVE_KNOB=BENCH_KNOB")
        here, there = knob(mine), knob(other)
        settings = [s for s in settings if here in s.knobs and s.knobs.get(there) == s.knobs[here]]
    return list(settings)


def write_bench_sweep(folder: Path, settings: Sequence[Setting], results: Sequence[Sequence[Outcome]]) -> None:
    """Write `SERVE--...-BENCH--.../run=N.json` and `summary.json` for each setting that ran, and `summary.csv`."""
    runs: list[dict[str, object]] = []
    for setting, replications in zip(settings, results, strict=True):
        mine = [
            _run_data(setting, number, one.summary)
            for number, one in enumerate(replications)
            if one.summary is not None
        ]
        if not mine:
            continue
        home = folder / _folder_name(setting)
        home.mkdir(parents=True, exist_ok=True)
        for data in mine:
            _write(home / f"run={data['run_number']}.json", data)
        _write(home / "summary.json", mine)
        runs += mine
    # Opened here: to pandas a relative folder may look like a home (~) or an address (http:).
    with (folder / "summary.csv").open("w", encoding="utf-8", newline="") as file:
        pd.DataFrame.from_records(runs).to_csv(file)


def _setting(path: Path, record: Mapping[str, object], half: str, value: Callable[[str, object], object]) -> Setting:
    known = SERVER_KNOBS if half == "server" else CLIENT_KNOBS
    for name in record.keys() - {NAME}:
        try:
            if knob(name) not in known:
                raise InputError(field=name, expected=f"a knob of the {half}")
        except InputError as error:
            raise InputError(str(error), file=path) from None
    ours = {name: given if name == NAME else value(underscored(name), given) for name, given in record.items()}
    return Setting(server=ours) if half == "server" else Setting(client=ours)


def _run_data(setting: Setting, number: int, summary: Mapping[str, Any]) -> dict[str, object]:
    """As vLLM: the bench's result without lists, then the parameters, on top of what has the same name."""
    plain = {name: value for name, value in summary.items() if name not in ("sim", "pace", "binding")}
    return {**plain, "run_number": number, **setting.server, **setting.client}


def _folder_name(setting: Setting) -> str:
    parts = []
    for word, params in (("SERVE-", setting.server), ("BENCH-", setting.client)):
        if params:
            parts += [word, str(params.get(NAME) or "-".join(f"{k}={v}" for k, v in params.items()))]
    name = "-".join(parts).replace("/", "_").replace("..", "__").strip("'").strip('"')
    return name if len(name.encode()) <= _LONGEST_NAME else f"{name[:150]}-{sha256(name.encode()).hexdigest()[:12]}"


def _write(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, indent=4), encoding="utf-8")
