"""Derives the shipped profiles that come from kernel tables, from a folder of measurements that is not in the project.

    python -m calibrate.derive_from_tables DATA_FOLDER [NAME ...]

The one idea: a profile is a recipe (kernels, model, server, and a synchronous run where there is one); everything that
is not measured stands here as a number with a reason. No served run under load is read, and only coefficients,
residuals and reports go into the project, no row of the data.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from calibrate import served_folder
from calibrate.cross_validate import FOLDS
from calibrate.synchronous import read_alone
from calibrate.tables_profile import Recipe, compose, make
from sim.cli.paths import PathType
from sim.cli.progress import counting
from sim.latency.profile import PROFILES, ClientTerms
from sim.output import result_directory
from sim.report.units import percent_tenths

if TYPE_CHECKING:
    from collections.abc import Mapping

REPORTS = Path("results", "calibration")

_H100, _H200 = Path("op_tables", "h100_sxm"), Path("op_tables", "h200_sxm")
_SWEEPS = Path("h100_guidellm_sweeps")

HOST_ROW_S = 12e-6
"""Host time per sequence and step: the real scheduler's 8 us (vLLM 0.32, 16 to 256 running sequences, one quiet core:
schedule() and update_from_output()) and half of that again for input rows and outputs. An estimate: 12 to 20 us are
plausible, and 12 was taken with the errors of h100-llama-3.1-8b's loaded runs at hand (16 missed one of them by more).
Under async scheduling it hides behind the device."""

_HOST_NOTE = (
    "host_row_s is no measurement of this server: 8 us of vLLM 0.32's scheduler on one core, and a guess of 4 us for"
    " input rows and outputs, taken from 4 to 12 with a synchronous server's loaded runs at hand. Async scheduling"
    " hides it"
)
_BORROWED_CLIENT = (
    "request_s and request_token_s are those of h100-llama-3.1-8b's synchronous run: the same front end, another model"
)
_SWEEP_NOTE = (
    "the source states no flags. GPU, budget and max_num_seqs are inferred; {how} scheduling, as a request that comes"
    " to a busy server waits {steps} for its first token"
)


@dataclass(frozen=True, slots=True)
class Shipped:
    """One profile's recipe."""

    kernels: Path
    model: str = ""
    tensor_parallel_size: int = 1
    synchronous: Path | None = None
    client: ClientTerms | None = None
    server: Mapping[str, object] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)


_CLIENT = ClientTerms(request_s=0.0077, request_token_s=4.7e-6)
"""Of h100-llama-3.1-8b, as this script finds it."""


def _gpt_oss(model: str, tp: int, **server: object) -> Shipped:
    return Shipped(
        _H100,
        model,
        tp,
        client=_CLIENT,
        # vLLM's own for this family (model_executor/models/config.py).
        server={"max_cudagraph_capture_size": 1024, **server},
        notes={
            "client": _BORROWED_CLIENT,
            "host per sequence": _HOST_NOTE,
            "not measured as a whole": "composed from kernels; no served run was read",
        },
    )


SHIPPED = {
    "h100-llama-3.1-8b": Shipped(
        _H100,
        "llama-3.1-8b",
        synchronous=_SWEEPS / "llama31_8b.csv",
        server={"max_num_batched_tokens": 8192, "max_num_seqs": 512, "async_scheduling": False},
        notes={"server": _SWEEP_NOTE.format(how="synchronous", steps="half a step"), "host per sequence": _HOST_NOTE},
    ),
    "h100-qwen2.5-14b": Shipped(
        _H100,
        "qwen2.5-14b",
        synchronous=_SWEEPS / "qwen25_14b.csv",
        server={"max_num_batched_tokens": 8192, "max_num_seqs": 512, "async_scheduling": True},
        notes={
            "server": _SWEEP_NOTE.format(how="async", steps="one and a half steps"),
            "host per sequence": _HOST_NOTE,
        },
    ),
    "h100-llama-3.1-70b-tp4": Shipped(
        _H100, "llama-3.1-70b", 4, client=_CLIENT, notes={"client": _BORROWED_CLIENT, "host per sequence": _HOST_NOTE}
    ),
    "h100-llama-2-70b-tp4": Shipped(
        _H100,
        "llama-2-70b",
        4,
        client=_CLIENT,
        server={"num_gpu_blocks_override": 31_356},
        notes={
            "client": _BORROWED_CLIENT,
            "host per sequence": _HOST_NOTE,
            "blocks": "as a real server of this model on 4 H100 had (inference-sim/inference-sim, Apache-2.0)",
        },
    ),
    "h100-codellama-34b-tp2": Shipped(
        _H100,
        "codellama-34b",
        2,
        client=_CLIENT,
        server={"num_gpu_blocks_override": 26_602},
        notes={
            "client": _BORROWED_CLIENT,
            "host per sequence": _HOST_NOTE,
            "blocks": "as a real server of this model on 2 H100 had (inference-sim/inference-sim, Apache-2.0)",
        },
    ),
    "h200-llama-3.1-8b": Shipped(
        _H200,
        "llama-3.1-8b",
        client=_CLIENT,
        notes={
            "client": _BORROWED_CLIENT,
            "host per sequence": _HOST_NOTE,
            "not measured as a whole": "composed from an H200's kernels; clocks under load are an H100's",
        },
    ),
    "h100-gpt-oss-20b": _gpt_oss("gpt-oss-20b", 1),
    # One GPU's memory does not hold the KV cache of the model's own 131,072 tokens.
    "h100-gpt-oss-120b": _gpt_oss("gpt-oss-120b", 1, max_model_len=32_768),
    "h100-gpt-oss-120b-tp2": _gpt_oss("gpt-oss-120b", 2),
    "rtx4090-llama-3.1-8b": Shipped(
        Path("vllm019_rtx4090_llama_31_8b"),
        notes={
            "host per sequence": _HOST_NOTE,
            "clocks": "as timed: no ratio is known for this GPU, and none was applied",
        },
    ),
}


@click.command()
@click.argument("data", type=PathType(exists=True, file_okay=False))
@click.argument("names", nargs=-1, type=click.Choice(list(SHIPPED)))
@click.option("--profiles", type=PathType(file_okay=False), default=PROFILES)
@click.option("--reports", type=PathType(file_okay=False), default=REPORTS)
def main(data: Path, names: tuple[str, ...], profiles: Path, reports: Path) -> None:
    """Derive the profiles (all, or those named) from the measurements in DATA."""
    for name in names or SHIPPED:
        derive(name, data, profiles / f"{name}.json", reports / name)


def derive(name: str, data: Path, out: Path, report: Path) -> None:
    """Write one profile and its report."""
    from calibrate.report import write_report  # matplotlib

    shipped = SHIPPED[name]
    folder = data / shipped.kernels
    recorded = served_folder.settings(folder) if (folder / served_folder.META).exists() else {}
    recipe = Recipe(
        name=name,
        folder=folder,
        model=shipped.model,
        tensor_parallel_size=shipped.tensor_parallel_size,
        host_row_s=HOST_ROW_S,
        client=shipped.client,
        server={**recorded, **shipped.server, "tensor_parallel_size": shipped.tensor_parallel_size},
        notes=shipped.notes,
        command=f"python -m calibrate.derive_from_tables DATA_FOLDER {name}",
    )
    composed = compose(recipe)
    alone = []
    if shipped.synchronous is not None:
        alone = read_alone(data / shipped.synchronous)
        told = "llm-inferno/model-trainer (Apache-2.0): the synchronous points of a GuideLLM sweep, GPU inferred"
        composed = replace(composed, source={**composed.source, "host and client": told})
    with counting(name, "fit", total=FOLDS) as on_fold:
        made = make(recipe, composed, alone, on_fold)
    made.profile.save(out)
    report.parent.mkdir(parents=True, exist_ok=True)
    with result_directory(report) as folder:
        write_report(made, folder)
    click.echo(f"{name}: held out {percent_tenths(made.profile.held_out['median_abs'])}; wrote {out}")


if __name__ == "__main__":
    main()
