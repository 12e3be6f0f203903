"""A latency profile: how long steps take on one GPU, model and engine, as a JSON file with its provenance.

Not for making one: that is calibrate. The one idea: this file is all that simulation knows of calibration, so it
carries the law's coefficients, where they hold, how well, where each comes from, and the server's settings.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.compilation import read_compilation
from sim.config import DTYPES, EngineConfig
from sim.errors import InputError, did_you_mean
from sim.latency.domain import Domain
from sim.latency.fields import Fields
from sim.latency.graphs import NO_GRAPHS, Graphs
from sim.latency.model import BOUNDS, LARGEST_S, UNITS, FusedLaw
from sim.latency.shape import StepShape
from sim.specs import ModelSpec, ParallelSpec, gpu_names, gpu_spec, model_spec
from sim.speculative import check_alone

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from sim.latency.domain import Range
    from sim.latency.model import StepTime
    from sim.specs import GpuSpec

SCHEMA_VERSION = 2
"""Raised when a file of the new kind would be misread by an older elpase; new optional fields do not raise it."""

PROFILES = Path(__file__).parent / "profiles"

DEFAULT_PROFILE = "h100-qwen3-14b"

_MOST = 10**9
"""Of any count in a profile: what is above was not measured."""
_MOST_BYTES = 10**15
_MOST_GPUS = 1024
_MOST_TOKENS = 1 << 20
"""Of a CUDA graph."""


@dataclass(frozen=True, slots=True)
class ClientTerms:
    """Seconds of a request's latency that pass outside the engine."""

    request_s: float = 0.0
    """From the client's send to the engine's queue: HTTP, tokenizer."""
    response_s: float = 0.0
    """From a step's end until the client sees its token: detokenizer, HTTP."""
    request_token_s: float = 0.0
    """On top of request_s, for every token of the prompt: the tokenizer."""


class DecodeCost(NamedTuple):
    """Seconds of steps that decode the same sequences: a straight line over their context."""

    host_s: float
    still_s: float
    """The device's, without any context."""
    context_s: float
    least_context: float
    most_context: float
    """The domain; empty where the number of sequences is outside of it."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A law and all that must be known to use it."""

    name: str
    model: str
    """Name in the catalogue of models, unless `model_config` is there."""
    gpu: str
    """Name in the catalogue of GPUs, or what the device calls itself."""
    tensor_parallel_size: int
    dtype: str
    engine: str
    engine_version: str
    law: FusedLaw
    domain: Domain
    client: ClientTerms
    server: Mapping[str, object]
    """vLLM flags (underscores) that it was measured under: defaults for a simulation."""
    kv_bytes_per_token: int
    device_memory_bytes: int
    residuals: Mapping[str, Any] = field(default_factory=dict)
    """Regime -> how far the law is from its samples, as relative errors."""
    held_out: Mapping[str, Any] = field(default_factory=dict)
    """How far laws fitted without a block of shapes are from the samples of that block, as relative errors."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    model_config: Mapping[str, Any] = field(default_factory=dict)
    """The config.json of a model that the catalogue does not have."""

    @classmethod
    def load(cls, name: str | os.PathLike[str]) -> Profile:
        """A shipped profile by its name, or a file by its path.

        Raises InputError that names file and field; OSError where a file cannot be read.
        """
        shipped = PROFILES / f"{name}.json"
        if str(name) in profile_names():
            return cls._parse(Fields.read(shipped))
        if not str(name) or not Path(name).exists():
            expected = f"the path of a profile, or one of {', '.join(profile_names())}"
            close = did_you_mean(str(name), profile_names())
            raise InputError(field="profile", value=str(name), expected=f"{expected}{close}")
        return cls._parse(Fields.read(name))

    @classmethod
    def of_law(
        cls, name: str, law: FusedLaw, *, model: str, gpu: str, server: Mapping[str, object] = MappingProxyType({})
    ) -> Profile:
        """A profile for a law from elsewhere, such as `FusedLaw.linear`: of any step, without client time.

        Model and GPU are names of the catalogue, and say how many KV blocks there are. Raises InputError.
        """
        anything: Range = (0.0, sys.float_info.max)
        return cls(
            name=name,
            model=model,
            gpu=gpu,
            tensor_parallel_size=1,
            dtype="bfloat16",
            engine="vllm",
            engine_version="unknown",
            law=law,
            domain=Domain(anything, anything, anything, anything),
            client=ClientTerms(),
            server=dict(server),
            kv_bytes_per_token=model_spec(model, dtype="bfloat16").kv_bytes_per_token("auto", ParallelSpec(1)),
            device_memory_bytes=gpu_spec(gpu).memory_bytes,
            provenance={"law": "stated, not fitted here"},
        )

    @classmethod
    def _parse(cls, top: Fields) -> Profile:
        version = top.integer("schema_version", least=1, most=_MOST)
        if version > SCHEMA_VERSION:
            raise top.wrong("schema_version", f"at most {SCHEMA_VERSION}: a newer elpase wrote this profile")
        client = top.object("client")
        domain = top.object("domain")
        profile = cls(
            name=top.text("name"),
            model=top.text("model"),
            gpu=top.text("gpu"),
            tensor_parallel_size=top.integer("tensor_parallel_size", least=1, most=_MOST_GPUS),
            dtype=top.one_of("dtype", DTYPES[1:]),
            engine=top.text("engine"),
            engine_version=top.text("engine_version"),
            law=_law(top),
            domain=Domain(**{axis.name: domain.range(axis.name) for axis in fields(Domain)}),
            client=_client(client),
            server=_server(top.object("server")),
            kv_bytes_per_token=top.integer("kv_bytes_per_token", least=1, most=_MOST),
            device_memory_bytes=top.integer("device_memory_bytes", least=1, most=_MOST_BYTES),
            residuals=top.object("residuals").table,
            held_out=_optional(top, "held_out"),
            provenance=top.object("provenance").table,
            model_config=_optional(top, "model_config"),
        )
        _check_model(profile, top)
        return profile

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile as JSON."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def to_json(self) -> str:
        """The profile as the text of its file."""
        document: dict[str, Any] = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        document["law"] = {
            "kind": "fused",
            "coefficients": {name: {"value": getattr(self.law, name), "unit": unit} for name, unit in UNITS.items()},
            "graphs": {"sizes": list(self.law.graphs.sizes), "mixed": self.law.graphs.mixed},
        }
        return json.dumps(document, indent=2) + "\n"

    def step_time(self, shape: StepShape) -> StepTime:
        """Seconds of a step."""
        return self.law.price(shape)

    def decode_cost(self, num_seqs: int) -> DecodeCost:
        """What steps cost that decode so many sequences and do nothing else."""
        still = self.law.price(StepShape(num_seqs, num_seqs, 0, 0, 0.0, num_seqs))
        least, most = self.domain.decode_context
        if self.outside(StepShape(num_seqs, num_seqs, math.ceil(least), 0, 0.0, num_seqs)) is not None:
            least, most = math.inf, -math.inf
        return DecodeCost(*still, self.law.context_s, least, most)

    def outside(self, shape: StepShape) -> str | None:
        """Where a shape leaves the fitted domain; None inside."""
        return self.domain.outside(shape)

    def known_gpu(self) -> GpuSpec | None:
        """The GPU's data sheet; None for a device that the catalogue does not have."""
        return gpu_spec(self.gpu) if self.gpu in gpu_names() else None

    def known_model(self, dtype: str | None = None) -> ModelSpec:
        """The model's sizes, in `dtype` where it is not the profile's own.

        Raises InputError where neither the catalogue nor the profile has them.
        """
        dtype = self.dtype if dtype in (None, "auto") else dtype
        if self.model_config:
            return ModelSpec.from_hf_config(dict(self.model_config), name=self.model, dtype=dtype)
        return model_spec(self.model, dtype=dtype)


def profile_names() -> list[str]:
    """Names of the shipped profiles."""
    return sorted(path.stem for path in PROFILES.glob("*.json"))


def _law(top: Fields) -> FusedLaw:
    law = top.object("law")
    if law.text("kind") != "fused":
        raise law.wrong("kind", "'fused'")
    table = law.object("coefficients")
    # A coefficient with a default came with a later elpase: profiles of before do without it.
    optional = {f.name for f in fields(FusedLaw) if isinstance(f.default, float)}
    named = [name for name in UNITS if name in table.table or name not in optional]
    values = {name: _coefficient(table.object(name), UNITS[name], name) for name in named}
    return FusedLaw(**values, graphs=_graphs(law.object("graphs")) if "graphs" in law.table else NO_GRAPHS)


def _client(table: Fields) -> ClientTerms:
    known = ("request_s", "response_s", "request_token_s")
    # The last one came with a later elpase.
    given = {name: table.number(name, 0.0, LARGEST_S) for name in known if name in table.table or name != known[2]}
    return ClientTerms(**given)


def _graphs(table: Fields) -> Graphs:
    sizes, mixed = table.table.get("sizes"), table.table.get("mixed")
    if not isinstance(sizes, list) or not all(isinstance(size, int) and size <= _MOST_TOKENS for size in sizes):
        raise table.wrong("sizes", f"a list of batch sizes, at most {_MOST_TOKENS}")
    if not isinstance(mixed, bool):
        raise table.wrong("mixed", "true or false")
    try:
        return Graphs(tuple(sizes), mixed)
    except InputError as error:
        raise table.wrong("sizes", error.expected or "") from None


def _optional(top: Fields, name: str) -> Mapping[str, Any]:
    """An object that came with a later elpase."""
    return top.object(name).table if name in top.table else {}


def _coefficient(entry: Fields, unit: str, name: str) -> float:
    if entry.text("unit") != unit:
        raise entry.wrong("unit", f"'{unit}'")
    return entry.number("value", *BOUNDS.get(name, (0.0, LARGEST_S)))


def _server(table: Fields) -> dict[str, object]:
    for name, value in table.table.items():
        expected = wrong_setting(name, value)
        if expected is not None:
            raise table.wrong(name, expected)
    return dict(table.table)


_JSON_FLAGS: Mapping[str, Callable[[str], object]] = MappingProxyType(
    {"compilation_config": read_compilation, "speculative_config": check_alone}
)
"""Flags whose text says an object -> what raises InputError for one that vLLM refuses."""


def wrong_setting(name: str, value: object) -> str | None:
    """What was expected instead of a flag of `server`; None where nothing is wrong with it by itself."""
    known = {flag.name for flag in fields(EngineConfig)}
    if name not in known:
        return f"a flag of vllm serve that elpase knows{did_you_mean(name, known)}"
    if not isinstance(value, bool | int | float | str):
        return "a flag's value: a number, a text, true or false"
    most = _MOST_BYTES if name.endswith("_bytes") else _MOST
    if isinstance(value, int) and value > most:
        return f"at most {most}"
    try:
        EngineConfig(**{name: value})  # type: ignore[arg-type]
        if name in _JSON_FLAGS:
            _JSON_FLAGS[name](str(value))
    except InputError as error:
        key = (error.field or "").removeprefix(name).removeprefix(".")
        return f"as its {key} {error.expected}" if key and error.expected else error.expected
    return None


def _check_model(profile: Profile, top: Fields) -> None:
    """Raise for a model of which nothing tells the sizes."""
    try:
        profile.known_model()
    except InputError as error:
        if not profile.model_config:
            raise top.wrong("model", error.expected or "") from None
        field_name = f"model_config.{error.field}"
        raise InputError(file=top.file, field=field_name, value=error.value, expected=error.expected) from None
