"""`elpase calibrate log`: the steps of vLLM iteration logs, as samples."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calibrate.cli import RecordedCommand, command_line
from calibrate.iteration_log import read_iteration_log
from calibrate.log_samples import is_clear, log_steps
from calibrate.samples import Origin, Samples
from calibrate.samples_file import write_samples
from calibrate.torch_options import model_name
from sim.cli.flags import whole_number
from sim.cli.paths import PathType
from sim.cli.progress import working
from sim.errors import InputError
from sim.json_file import read_json_object
from sim.plurals import counted
from sim.specs import gpu_names, gpu_spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calibrate.iteration_log import IterationLog


@click.command(cls=RecordedCommand, short_help="Read the steps of a vLLM iteration log.")
@click.argument("logs", nargs=-1, required=True, type=PathType())
@click.option("--out", required=True, type=PathType(dir_okay=False), help="The samples (Parquet).")
@click.option("--gpu", required=True, help="A GPU of the catalogue, or what the device calls itself.")
@click.option("--model", required=True, help="The model's name: one of the catalogue, or any; or its config.json.")
@click.option(
    "--device-memory", type=whole_number, metavar="BYTES", help="Of a GPU that the catalogue does not have, as 24G."
)
@click.option("--tensor-parallel-size", default=1, show_default=True, type=click.IntRange(min=1))
@click.option("--dtype", default="bfloat16", show_default=True, help="Of the weights.")
@click.option("--synchronous", is_flag=True, help="The logs do not say, but scheduling was synchronous.")
def command(logs: Sequence[Path], out: Path, *, synchronous: bool, **said: Any) -> None:
    """Make samples of the logs of `vllm serve --enable-logging-iteration-details --no-async-scheduling`.

    A log has totals only: how long contexts were is known where the KV usage is logged finely enough, and the host's
    time where lines carry time stamps. A log taken under async scheduling is refused: its times are not steps.

    Example: elpase calibrate log server.log --gpu h100 --model llama-3.1-8b --out samples.parquet
    """
    for name in ("gpu", "model"):
        if not said[name]:
            raise InputError(field=f"--{name}", value="", expected="a name")
    memory = said["device_memory"]
    if memory is not None and memory < 1:
        raise InputError(field="--device-memory", value=memory, expected="bytes, 1 or more")
    read = []
    with working("reading logs"):
        for path in logs:
            log = read_iteration_log(path)
            log.require_synchronous(path, assume=synchronous)
            read.append(log)
        steps = [step for log in read for step in log_steps(log)]
    if not steps:
        raise InputError("no step whose totals say what was computed", file=logs[0])
    write_samples(out, Samples.of_steps(steps, _origin(read, said)))
    click.echo(f"{counted(len(steps), 'sample')} in {out}{_left_out(read)}")


def _origin(read: Sequence[IterationLog], said: dict[str, Any]) -> Origin:
    gpu, memory = said["gpu"], said["device_memory"]
    model, config = _model(said["model"])
    return Origin(
        device=gpu_spec(gpu).device_name if gpu in gpu_names() else gpu,
        model=model,
        tensor_parallel_size=said["tensor_parallel_size"],
        dtype=said["dtype"],
        engine="vllm",
        engine_version=", ".join(dict.fromkeys(log.version for log in read if log.version)),
        date=datetime.now(tz=UTC).isoformat(timespec="seconds"),
        command=command_line(),
        model_config=config,
        server={"async_scheduling": False},
        notes={"engines": sum(len(log.engines()) for log in read)}
        | ({} if memory is None else {"device_memory_bytes": memory}),
    )


def _model(said: str) -> tuple[str, dict[str, Any]]:
    """Its name, and its config.json where that is what was said."""
    file = Path(said) / "config.json" if Path(said).is_dir() else Path(said)
    return (model_name(said), read_json_object(file, "a model's config.json")) if file.is_file() else (said, {})


def _left_out(read: Sequence[IterationLog]) -> str:
    """What of the logs is not among the samples."""
    counts = Counter[str]()
    for log in read:
        counts["broken lines"] += log.broken
        counts["dummy steps"] += log.dummies
        counts["repeated lines"] += log.repeated
        counts["steps with resumed or drafting requests"] += sum(not is_clear(step) for step in log.iterations)
    told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f"; left out: {told}" if told else ""
