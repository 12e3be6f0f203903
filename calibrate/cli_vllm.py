"""`elpase calibrate vllm`: the steps of a real vLLM engine, timed, as samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from calibrate.cli import RecordedCommand, command_line
from calibrate.cli_pairs import flag_values
from calibrate.harness.interpreter import find_interpreter
from calibrate.harness.vllm import (
    EngineJob,
    engine_arguments,
    origin,
    plan_waves,
    read_records,
    run_job,
    timed_steps,
)
from calibrate.samples import Samples
from calibrate.samples_file import write_samples
from sim.cli.numbers import FiniteRange
from sim.cli.paths import PathType
from sim.cli.progress import counting
from sim.errors import InputError
from sim.hf_config import HfConfig
from sim.json_file import read_json_object
from sim.plurals import counted

if TYPE_CHECKING:
    from pathlib import Path


def _extra(_ctx: click.Context, _param: click.Parameter, said: tuple[str, ...]) -> dict[str, Any]:
    return flag_values(said, "NAME=VALUE")


@click.command(cls=RecordedCommand, short_help="Time the steps of the real vLLM engine.")
@click.option(
    "--vllm-python",
    "python",
    required=True,
    type=PathType(),
    help="The Python that has vLLM 0.32.",
)
@click.option("--model", required=True, type=PathType(), help="Folder with a config.json.")
@click.option("--out", required=True, type=PathType(dir_okay=False), help="The samples (Parquet).")
@click.option("--budget-s", default=300.0, show_default=True, type=FiniteRange(min=1.0), help="Seconds to time.")
@click.option("--dtype", default="auto", show_default=True, help="As vllm serve --dtype.")
@click.option("--max-num-batched-tokens", default=2048, show_default=True, type=click.IntRange(min=1))
@click.option("--max-num-seqs", default=64, show_default=True, type=click.IntRange(min=2))
@click.option("--max-model-len", default=4096, show_default=True, type=click.IntRange(min=64))
@click.option("--block-size", type=click.IntRange(min=1), help="Tokens of a KV block.  [default: vLLM's]")
@click.option("--enforce-eager", is_flag=True, help="No CUDA graphs, no compilation.")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(min=1), help="Of a CPU build's model.")
@click.option("--kv-gib", default=1, show_default=True, type=click.IntRange(min=1), help="KV cache of a CPU build.")
@click.option("--engine-arg", "extra", multiple=True, callback=_extra, help="NAME=VALUE for vLLM's EngineArgs.")
def command(python: Path, model: Path, out: Path, budget_s: float, extra: dict[str, Any], **said: Any) -> None:
    """Run waves of prompts and decodes through a real vLLM engine (dummy weights), and time every step.

    The engine lives in vLLM's own interpreter; device and host are told apart. Any part of the waves makes usable
    samples, so --budget-s may be short. Called again with the same --out it goes on where it was.

    Example: elpase calibrate vllm --vllm-python ~/vllm/bin/python --model llama-8b --out samples.parquet
    """
    vllm = find_interpreter(python)
    HfConfig(model)  # told before a minute of starting
    environment = {"OMP_NUM_THREADS": str(said.pop("threads")), "VLLM_CPU_KVCACHE_SPACE": str(said.pop("kv_gib"))}
    waves = plan_waves(said["max_model_len"], said["max_num_seqs"])
    partial = out.with_suffix(".steps.jsonl").absolute()
    job = EngineJob(engine_arguments(model.absolute(), **said, **extra), waves, partial, budget_s, environment)
    with counting("vLLM engine", "wave", len(waves)) as on_wave:
        run_job(vllm, job, on_wave)
    records = read_records(partial)
    steps = list(timed_steps(records))
    if not steps:
        raise InputError("no wave could be run", file=partial)
    write_samples(out, Samples.of_steps(steps, origin(records, model.name, _document(model), command_line())))
    skipped = sum("skipped" in record for record in records)
    ran = sum("steps" in record for record in records)
    click.echo(f"{counted(len(steps), 'sample')} of {counted(ran, 'wave')} ({skipped} could not run here) in {out}")


def _document(model: Path) -> dict[str, Any]:
    return read_json_object(model / "config.json" if model.is_dir() else model)
