"""`elpase validate`: how far the simulator is from a run that was measured."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from calibrate.validate import FIGURES, read_measured, validate
from sim.cli.flags import EngineCommand, engine_config, engine_options
from sim.cli.progress import progress_bar
from sim.latency.profile import DEFAULT_PROFILE, Profile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from calibrate.validate import Comparison

_LABELS = {
    "throughput": ("Output throughput (tok/s)", 1.0),
    "ttft_mean": ("Mean TTFT (ms)", 1e3),
    "ttft_p50": ("Median TTFT (ms)", 1e3),
    "ttft_p99": ("P99 TTFT (ms)", 1e3),
    "tpot_mean": ("Mean TPOT (ms)", 1e3),
    "tpot_p99": ("P99 TPOT (ms)", 1e3),
    "e2e_mean": ("Mean E2EL (ms)", 1e3),
}


@click.command(cls=EngineCommand, short_help="Replay a measured run; compare simulated with real times.")
@click.option("--profile", default=DEFAULT_PROFILE, show_default=True, help="Latency profile: a name or a JSON file.")
@click.option(
    "--measured",
    required=True,
    type=click.Path(path_type=Path),
    help="CSV: arrival_s, send_s, prompt_tokens, output_tokens, ttft_s, e2e_s (the last two counted from send).",
)
@click.option("--max-in-flight", type=click.IntRange(min=1), help="The client's cap on requests in flight.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: real, simulated, errors (fractions).")
@engine_options
def command(profile: str, measured: Path, max_in_flight: int | None, as_json: bool, **flags: Any) -> None:
    """Replay a measured run and compare each figure with the real one.

    Arrivals, lengths and the cap in flight are replayed; what the server did is simulated. Flags of `vllm serve` stand
    above the settings that the profile was measured under.

    Example: elpase validate --measured open_8rps.csv --max-in-flight 256
    """
    config = engine_config(flags)
    loaded = Profile.load(profile)
    run = read_measured(measured)
    with progress_bar("validate") as on_progress, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        comparison = validate(run, loaded, config, max_in_flight=max_in_flight, on_progress=on_progress)
    for warning in caught:
        click.echo(f"warning: {warning.message}", err=True)
    if as_json:
        parts = {"real": comparison.real, "simulated": comparison.simulated, "errors": comparison.errors}
        click.echo(json.dumps({name: _without_nan(part) for name, part in parts.items()}, indent=2))
    else:
        _print(comparison, title=f"{measured.name}: {len(run):,} requests, profile {loaded.name}")


def _without_nan(figures: Mapping[str, float]) -> dict[str, float | None]:
    """JSON has no NaN."""
    return {name: None if math.isnan(value) else value for name, value in figures.items()}


def _print(comparison: Comparison, title: str) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for column in ("real", "simulated", "error"):
        table.add_column(column, justify="right")
    for name in FIGURES:
        label, unit = _LABELS[name]
        real, simulated = comparison.real[name] * unit, comparison.simulated[name] * unit
        table.add_row(label, f"{real:,.2f}", f"{simulated:,.2f}", f"{comparison.errors[name]:+.1%}")
    Console().print(table)
