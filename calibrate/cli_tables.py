"""`elpase calibrate tables`: a profile from tables of measured kernels, for any model and number of GPUs."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from calibrate import served_folder
from calibrate.cli import RecordedCommand, command_line
from calibrate.cli_fit import require_place, tell
from calibrate.cli_pairs import pair, server_option
from calibrate.compose import SUSTAINED_CLOCKS
from calibrate.cross_validate import FOLDS
from calibrate.samples_file import write_samples
from calibrate.synchronous import read_alone
from calibrate.tables_profile import Recipe, compose, make
from sim.cli.numbers import FiniteRange
from sim.cli.paths import PathType
from sim.cli.progress import counting, working
from sim.latency.profile import ClientTerms
from sim.output import result_directory, write_text_atomic

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def _notes(_ctx: click.Context, _param: click.Parameter, said: tuple[str, ...]) -> dict[str, str]:
    return dict(pair(text, "ABOUT=TEXT") for text in said)


@click.command(cls=RecordedCommand, short_help="Compose a model's steps from tables of measured kernels.")
@click.argument("folder", type=PathType(exists=True, file_okay=False))
@click.option("--out", required=True, type=PathType(dir_okay=False), help="The profile, a JSON file.")
@click.option("--samples", type=PathType(dir_okay=False), help="Write the steps too (Parquet).")
@click.option("--report", type=PathType(file_okay=False), help="Folder for report.md and its pictures.")
@click.option("--name", help="The profile's name.  [default: that of --out]")
@click.option("--model", default="", help="A model of the catalogue or a config.json.  [default: the folder's own]")
@click.option("--gpu", default="", help="A GPU of the catalogue.  [default: the device that was timed]")
@click.option("--tp", default=1, show_default=True, type=click.IntRange(min=1), help="GPUs, tensor parallel.")
@click.option(
    "--synchronous",
    type=PathType(dir_okay=False),
    help="A run of one request at a time: its GuideLLM sweep, or a CSV of requests. Fixes host and client.",
)
@click.option(
    "--clocks",
    default=SUSTAINED_CLOCKS,
    show_default=True,
    type=FiniteRange(min=0.5, max=2.0),
    help="How much longer arithmetic takes under load than in a loop of one kernel.",
)
@click.option(
    "--host-row-us", default=0.0, type=FiniteRange(min=0), help="Microseconds of host time per sequence and step."
)
@click.option("--request-s", type=FiniteRange(min=0), help="Seconds from a send to the engine's queue.")
@click.option("--request-token-s", default=0.0, type=FiniteRange(min=0), help="The same, per prompt token.")
@server_option("A vllm serve flag of the profile's server.  [default: the folder's meta.json, then vLLM's defaults]")
@click.option("--note", "notes", multiple=True, callback=_notes, metavar="ABOUT=TEXT", help="A note for the profile.")
def command(
    folder: Path, out: Path, samples: Path | None, report: Path | None, synchronous: Path | None, **said: Any
) -> None:
    """Compose a model's steps from the kernels in FOLDER and fit a latency profile to them.

    FOLDER holds NVIDIA AIConfigurator's tables of one GPU (gemm_perf.parquet, ...), or vLLM's own layers timed for one
    model (op_dense.csv, op_attention.csv, op_per_sequence.csv, op_meta.yaml).

    Example: elpase calibrate tables op_tables/h100_sxm --model llama-3.1-70b --tp 4 --out h100-llama-3.1-70b-tp4.json
    """
    require_place(out)
    recipe = _recipe(folder, out, said)
    alone = [] if synchronous is None else read_alone(synchronous)
    with working("composing steps"):
        composed = compose(recipe)
    if synchronous is not None:
        run = f"synchronous run {synchronous.name}"
        composed = replace(composed, source={**composed.source, "host and client": run})
    if samples is not None:
        write_samples(samples, composed.samples)
    with nullcontext() if report is None else result_directory(report) as written:
        with counting("calibrate tables", "fit", total=FOLDS) as on_fold:
            made = make(recipe, composed, alone, on_fold)
        if written is not None:
            from calibrate.report import write_report  # matplotlib, only where somebody wants pictures

            write_report(made, written)
        write_text_atomic(out, made.profile.to_json())
    tell(made, out)


def _recipe(folder: Path, out: Path, said: dict[str, Any]) -> Recipe:
    request_s, tp = said["request_s"], said["tp"]
    return Recipe(
        name=said["name"] or out.stem,
        folder=folder,
        model=said["model"],
        gpu=said["gpu"],
        tensor_parallel_size=tp,
        clocks=said["clocks"],
        host_row_s=said["host_row_us"] / 1e6,
        client=None if request_s is None else ClientTerms(request_s, 0.0, said["request_token_s"]),
        server={**_recorded(folder), "tensor_parallel_size": tp, **said["server"]},
        notes=said["notes"],
        command=command_line(),
    )


def _recorded(folder: Path) -> Mapping[str, Any]:
    """The server's flags, where a run was recorded beside the kernels."""
    return served_folder.settings(folder) if (folder / served_folder.META).exists() else {}
