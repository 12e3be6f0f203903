"""The flags that say what runs real passes and how, for the verbs that do; and the runner that they make.

Not for torch itself, which is only loaded when a runner is made: `elpase calibrate torch --help` works without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from calibrate.cli import RecordedCommand, command_line
from calibrate.samples import Origin
from sim.cli.flags import EngineCommand, GroupedOption
from sim.cli.numbers import FiniteRange
from sim.cli.progress import working
from sim.errors import InputError
from sim.hf_config import DTYPE_BYTES, HfConfig
from sim.json_file import read_json_object
from sim.latency.graphs import capture_sizes
from sim.specs import CATALOG, model_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from calibrate.harness.decoder_shape import DecoderShape

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")

GIB = 1 << 30
_ALIASES = {"half": "float16", "float": "float32"}
"""vLLM's other names of types."""
_KERNELS = ("auto", "fa-paged", "triton", "flash", "sdpa")


@dataclass(frozen=True, slots=True)
class Bench:
    """A runner that is ready, and what must be noted of it."""

    runner: Any
    shape: DecoderShape
    dtype: str
    origin: Origin
    memory_error: type[Exception]


_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--model", {"required": True, "help": "A model of the catalogue, or a Hugging Face config.json."}),
    (
        "--device",
        {"default": "auto", "show_default": True, "help": "cuda, cuda:1, cpu; auto: cuda where there is one."},
    ),
    (
        "--dtype",
        {
            "type": click.Choice(["auto", *DTYPE_BYTES]),
            "default": "auto",
            "show_default": True,
            "help": "Type of weights and activations. auto: the model's own; float32 on a CPU.",
        },
    ),
    (
        "--attention",
        {
            "type": click.Choice(_KERNELS),
            "default": "auto",
            "show_default": True,
            "help": "Attention kernel. auto: the best that works here.",
        },
    ),
    ("--kv-gib", {"type": FiniteRange(min=0, min_open=True), "help": "KV cache. Default: what is left; CPU: 2."}),
    ("--threads", {"type": click.IntRange(min=1), "help": "CPU threads of torch. Default: torch's own."}),
    ("--no-graphs", {"is_flag": True, "help": "No CUDA graphs for pure decodes."}),
)


class TorchCommand(RecordedCommand, EngineCommand):
    """Grouped help, and a record of how it was called."""


def torch_options(*, without: tuple[str, ...] = ()) -> Callable[[Decorated], Decorated]:
    """Add the flags that `make_bench` reads to a command with `cls=TorchCommand`, but those it has already."""

    def add(function: Decorated) -> Decorated:
        for name, settings in reversed(_OPTIONS):
            if name not in without:
                function = click.option(name, cls=GroupedOption, group="Real passes", **settings)(function)
        return function

    return add


def harness() -> Any:
    """The module that runs passes. Raises InputError where torch is missing."""
    if find_spec("torch") is None:
        raise InputError("torch is not installed: pip install 'elpase[torch]', or a build of it for your device")
    return import_module("calibrate.harness.torch_runner")


def device_of(kwargs: Mapping[str, Any]) -> str:
    """The device that `--device` means."""
    return str(harness().usable_device(kwargs["device"]))


def make_bench(
    kwargs: Mapping[str, Any],
    *,
    max_tokens: int,
    max_seqs: int,
    shard_of: int = 1,
    block_size: int | None = None,
    num_blocks: int | None = None,
    cold_l2: bool = False,
) -> Bench:
    """A runner for a command's keyword arguments. Raises InputError, also where torch is missing."""
    from calibrate.harness.decoder_shape import DecoderShape

    source = model_source(kwargs["model"])
    shape = DecoderShape.from_hf_config(source, name=model_name(kwargs["model"]), shard_of=shard_of)
    torch_runner, device = harness(), device_of(kwargs)
    dtype = kwargs["dtype"] or "auto"
    dtype = _ALIASES.get(dtype, dtype)
    if dtype == "auto":
        dtype = torch_runner.default_dtype(device, HfConfig(source).dtype())
    options = torch_runner.RunnerOptions(
        device=device,
        dtype=dtype,
        attention=kwargs["attention"],
        block_size=block_size,
        num_blocks=num_blocks,
        kv_bytes=None if kwargs["kv_gib"] is None else int(kwargs["kv_gib"] * GIB),
        max_tokens=max_tokens,
        graph_sizes=() if kwargs["no_graphs"] else capture_sizes(max_tokens, max_seqs),
        cold_l2=cold_l2,
        threads=kwargs["threads"],
    )
    with working(f"making {shape.name} on {device}"):
        runner = torch_runner.TorchRunner(shape, options)
    facts = torch_runner.device_facts(device)
    return Bench(runner, shape, dtype, _origin(runner, facts, source, dtype), torch_runner.OutOfMemory)


def model_source(model: str) -> Path:
    """The config.json that a name or a path means. Raises InputError."""
    name = model.rpartition("/")[2].lower()
    if name in model_names():
        return CATALOG / "models" / f"{name}.json"
    path = Path(model)
    if not path.exists():
        expected = f"the path of a config.json, or one of {', '.join(model_names())}"
        raise InputError(field="--model", value=model, expected=expected)
    return path / "config.json" if path.is_dir() else path


def model_name(model: str) -> str:
    """The catalogue's name, or the one of the folder or file that holds the config."""
    path = Path(model)
    if path.is_dir():
        return path.name
    return path.parent.name if path.name == "config.json" and path.parent.name else path.stem.lower()


def _origin(runner: Any, facts: Any, source: Path, dtype: str) -> Origin:
    shape, backend = runner.shape, runner.backend
    notes = {
        "device_memory_bytes": facts.memory_bytes,
        "attention": backend.name,
        "attention_rejected": backend.rejected,
        "block_size": runner.block_size,
        "threads": runner.threads,
        "cold_l2": runner.options.cold_l2,
    }
    if shape.tensor_parallel_size > 1:
        notes["collectives"] = "not timed: one GPU ran one shard"
    return Origin(
        device=facts.device,
        model=shape.name,
        tensor_parallel_size=shape.tensor_parallel_size,
        dtype=dtype,
        engine="torch",
        engine_version=facts.versions["torch"],
        driver=facts.driver,
        versions=facts.versions,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command_line(),
        model_config=read_json_object(source),
        capture_sizes=runner.graph_sizes,
        server={"async_scheduling": False, "block_size": runner.block_size},
        notes=notes,
    )
