"""`elpase profiles`: the latency profiles that ship, where they hold and how far to trust them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from sim.latency.profile import DEFAULT_PROFILE, Profile, profile_names
from sim.report.units import percent_tenths

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADINGS = ["profile", "GPUs", "tokens", "sequences", "context", "error"]


@click.command(short_help="The latency profiles that ship: device, domain, held-out error.")
@click.option("--json", "as_json", is_flag=True, help="Print all that is known of each, as a list of JSON objects.")
def command(as_json: bool) -> None:
    """List the profiles that ship with elpase. `--profile` of the other verbs takes their names, or a file.

    Held-out errors are of steps that the law was not fitted to (medians); a profile without them tells its fit's own.

    Example: elpase profiles --json
    """
    told = [describe(Profile.load(name)) for name in profile_names()]
    if as_json:
        click.echo(json.dumps(told, indent=2))
        return
    for line in _lines([_HEADINGS, *map(_cells, told)]):
        click.echo(line)
    click.echo()
    click.echo("Tokens, sequences, decode context: of the largest step that was timed.")
    click.echo("Error: median of steps held out of the fit. *: of its own steps, the worst kind.")
    click.echo(f"Default: {DEFAULT_PROFILE}. Engine, data type and more: --json.")


def describe(profile: Profile) -> dict[str, Any]:
    """What the verb tells of a profile. Errors are fractions; `held_out_error` is None where nothing was held out."""
    domain = profile.domain
    axes = ("num_tokens", "num_seqs", "decode_context", "chunk_pairs")
    fit_errors = {regime: size.get("median_abs") for regime, size in profile.residuals.items()}
    return {
        "name": profile.name,
        "model": profile.model,
        "gpu": profile.gpu,
        "tensor_parallel_size": profile.tensor_parallel_size,
        "dtype": profile.dtype,
        "engine": profile.engine,
        "engine_version": profile.engine_version,
        "domain": {axis: list(getattr(domain, axis)) for axis in axes},
        "held_out_error": profile.held_out.get("median_abs"),
        "held_out": dict(profile.held_out),
        "fit_errors": fit_errors,
        "date": profile.provenance.get("date"),
    }


def _cells(row: dict[str, Any]) -> list[str]:
    gpus = row["gpu"] if row["tensor_parallel_size"] == 1 else f"{row['tensor_parallel_size']} x {row['gpu']}"
    largest = [row["domain"][axis][1] for axis in ("num_tokens", "num_seqs", "decode_context")]
    known = [size for size in row["fit_errors"].values() if isinstance(size, float)]
    error = "-"
    if row["held_out_error"] is not None:
        error = percent_tenths(row["held_out_error"])
    elif known:
        error = f"{percent_tenths(max(known))}*"
    return [row["name"], gpus, *(f"{n:,.0f}" for n in largest), error]


def _lines(rows: list[list[str]]) -> Iterator[str]:
    """Columns as wide as they must be, whatever the terminal: texts to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            text.ljust(width) if name in ("profile", "GPUs") else text.rjust(width)
            for name, text, width in zip(_HEADINGS, row, widths, strict=True)
        ]
        yield "  ".join(cells)
