"""`elpase calibrate fit`: samples in, a profile and its report out."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import click
from rich.console import Console

from calibrate.cli import RecordedCommand, command_line
from calibrate.cli_pairs import pair, server_option
from calibrate.cross_validate import FOLDS
from calibrate.fit import OPTIONAL
from calibrate.make_profile import Target, calibrate, padded
from calibrate.samples_file import read_all
from calibrate.unknowns import with_mean_context
from sim.cli.numbers import FiniteRange
from sim.cli.paths import PathType
from sim.cli.progress import counting
from sim.errors import InputError
from sim.latency.graphs import Graphs, capture_sizes
from sim.latency.model import BOUNDS, UNITS
from sim.latency.profile import ClientTerms
from sim.output import resolved, result_directory, write_text_atomic
from sim.plurals import counted
from sim.report.units import percent_tenths

if TYPE_CHECKING:
    from pathlib import Path

    from calibrate.make_profile import Calibration
    from calibrate.samples import Samples


def _fixed(_ctx: click.Context, _param: click.Parameter, said: tuple[str, ...]) -> dict[str, float]:
    fixed = {}
    for name, value in (pair(text, "NAME=VALUE") for text in said):
        if name not in UNITS:
            raise click.BadParameter(f"got {name!r}, expected one of {', '.join(UNITS)}")
        low, high = BOUNDS.get(name, (0.0, float("inf")))
        try:
            fixed[name] = float(value)
        except ValueError:
            raise click.BadParameter(f"{name}: got {value!r}, expected a number") from None
        if not low <= fixed[name] <= high:
            raise click.BadParameter(f"{name}: got {value}, expected a number from {low:g} to {high:g}")
    return fixed


def _graphs(_ctx: click.Context, _param: click.Parameter, said: str) -> Graphs | None:
    """None: what the samples say."""
    if said == "auto":
        return None
    tokens, _, seqs = said.removeprefix("vllm:").partition(",")
    if not said.startswith("vllm:") or not tokens.isdecimal() or not seqs.isdecimal() or not int(tokens) * int(seqs):
        raise click.BadParameter(f"got {said!r}, expected auto, or vllm:MAX_NUM_BATCHED_TOKENS,MAX_NUM_SEQS")
    return Graphs(capture_sizes(int(tokens), int(seqs)), mixed=True)


@click.command(cls=RecordedCommand, short_help="Fit a latency profile to samples; cross-validate; report.")
@click.argument("samples", nargs=-1, required=True, type=PathType())
@click.option("--out", required=True, type=PathType(dir_okay=False), help="The profile, a JSON file.")
@click.option("--report", type=PathType(file_okay=False), help="Folder for report.md and its pictures.")
@click.option("--name", help="The profile's name.  [default: that of --out]")
@click.option("--model", default="", help="A model of the catalogue or a config.json.  [default: as the samples say]")
@click.option("--gpu", default="", help="A GPU of the catalogue.  [default: the samples' device]")
@click.option(
    "--term",
    "terms",
    multiple=True,
    type=click.Choice([*OPTIONAL, "none"]),
    help="An optional coefficient to fit.  [default: those that make held-out errors smaller]",
)
@click.option(
    "--fix", "fixed", multiple=True, callback=_fixed, metavar="NAME=VALUE", help="A coefficient to leave alone."
)
@click.option("--mean-context", type=FiniteRange(min=0), help="Tokens of context where a log does not say them.")
@click.option(
    "--graphs",
    default="auto",
    callback=_graphs,
    show_default=True,
    help="CUDA graphs of samples that do not say which served them: vllm:MAX_NUM_BATCHED_TOKENS,MAX_NUM_SEQS.",
)
@click.option("--request-s", default=0.0, type=FiniteRange(min=0), help="Seconds from a send to the engine's queue.")
@server_option(
    "A vllm serve flag that the steps were measured under, where the samples do not say: async_scheduling=false."
)
def command(
    samples: tuple[Path, ...],
    out: Path,
    report: Path | None,
    name: str | None,
    model: str,
    gpu: str,
    terms: tuple[str, ...],
    fixed: dict[str, float],
    mean_context: float | None,
    graphs: Graphs | None,
    request_s: float,
    server: dict[str, object],
) -> None:
    """Fit a latency profile to SAMPLES, tables that the other verbs wrote, all of one device and model.

    Errors are relative and outliers damped; no coefficient is negative. The report's errors are of steps that were
    held out, by blocks of shapes.

    Example: elpase calibrate fit torch.parquet --out h200-llama-3.1-8b.json --report results/calibration/h200
    """
    target = Target(
        name=name or out.stem,
        model=model,
        gpu=gpu,
        client=ClientTerms(request_s=request_s),
        server=server,
        command=command_line(),
    )
    require_place(out)
    table = _prepared(read_all(samples), mean_context, graphs)
    chosen = tuple(term for term in terms if term != "none") if terms else None
    with nullcontext() if report is None else result_directory(report) as folder:
        with counting("calibrate fit", "fit", total=FOLDS if terms else None) as on_fold:
            made = calibrate(table, target, fixed=fixed, terms=chosen, on_fold=on_fold)
        if folder is not None:
            from calibrate.report import write_report  # matplotlib, only where somebody wants pictures

            write_report(made, folder)
        write_text_atomic(out, made.profile.to_json())
    tell(made, out)


def require_place(out: Path) -> None:
    """Say before the work, not after it, that the profile cannot be written."""
    if out.is_dir():
        raise InputError(file=out, expected="the name of a file: this is a folder")
    if not resolved(out).parent.is_dir():
        raise InputError(file=out, expected="a file in a folder that exists")


def _prepared(samples: Samples, mean_context: float | None, graphs: Graphs | None) -> Samples:
    if mean_context is not None:
        samples = with_mean_context(samples, mean_context)
    return samples if graphs is None else padded(samples, graphs)


def tell(made: Calibration, out: Path) -> None:
    """Print how well the profile foretells, and what the samples could not say."""
    told = made.profile.held_out
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{made.profile.name}: {counted(len(made.samples), 'step')}, wrote {out}")
    if told:
        half, most = percent_tenths(told["median_abs"]), percent_tenths(told["p90_abs"])
        console.print(f"held out ({told['how']}): median error {half}, 90 % within {most}")
    for regime, size in (made.held_out.regimes or made.profile.residuals).items():
        half, most = percent_tenths(size["median_abs"]), percent_tenths(size["p90_abs"])
        console.print(f"  {regime:28} {size['samples']:>8,} steps  median {half:>7}  90 % {most:>7}")
    for about, text in made.statements.items():
        console.print(f"note, {about}: {text}")
