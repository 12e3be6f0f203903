"""From samples to a profile: the fit, its cross-validation, the domain, and everything that is known about the origin.

Not for files. The one idea: a profile says of each number where it comes from and how far to trust it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrate.cross_validate import HeldOut, choose_terms, cross_validate
from calibrate.fit import Fit, fit
from calibrate.physics import rates
from calibrate.samples import FULL_GRAPH, GRAPH_UNKNOWN, NO_GRAPH, PIECEWISE_GRAPH, SUSTAINED
from calibrate.unknowns import fill, statements
from sim import __version__
from sim.errors import InputError
from sim.latency.domain import Domain
from sim.latency.graphs import Graphs
from sim.latency.profile import ClientTerms, Profile
from sim.report.units import percent
from sim.specs import ModelSpec, ParallelSpec, gpu_names, gpu_spec, model_names, model_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from calibrate.samples import Origin, Samples
    from sim.specs import GpuSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What the profile is of. Unset fields are what the samples say."""

    name: str
    model: str = ""
    """Name in the catalogue, or the path of a config.json."""
    gpu: str = ""
    client: ClientTerms = field(default_factory=ClientTerms)
    server: Mapping[str, object] = field(default_factory=dict)
    """vLLM flags (underscores), on top of what the samples' origin says."""
    notes: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    command: str = ""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A profile and what its report shows."""

    profile: Profile
    samples: Samples
    fit: Fit
    held_out: HeldOut
    scores: dict[str, float]
    """Optional coefficients tried -> held-out score."""
    statements: dict[str, str]
    """What the samples cannot tell."""
    model: ModelSpec
    gpu: GpuSpec | None


def calibrate(
    samples: Samples,
    target: Target,
    *,
    fixed: Mapping[str, float] | None = None,
    terms: Sequence[str] | None = None,
    on_fold: Callable[[], None] = lambda: None,
) -> Calibration:
    """Fit, cross-validate and describe. Without `terms` the optional coefficients are chosen by held-out error.

    Raises InputError where the samples are too few or do not say what they are of.
    """
    origin = samples.origins[0]
    model, config = _model(target, origin)
    gpu = _gpu(target, origin)
    memory_bytes = _memory_bytes(gpu, origin)
    graphs = _graphs(samples)
    scores: dict[str, float] = {}
    if terms is None:
        fit(samples, fixed=fixed, terms=())  # too few shapes are told before the long search
        terms, scores = choose_terms(samples, fixed=fixed, on_fold=on_fold)
    found = fit(samples, fixed=fixed, terms=terms, graphs=graphs)
    held_out = cross_validate(samples, fixed=fixed, terms=terms, on_fold=on_fold)
    told = statements(samples) | _confounded(found) | _poor(held_out)
    profile = Profile(
        name=target.name,
        model=model.name,
        gpu=origin.device if gpu is None else gpu.name,
        tensor_parallel_size=origin.tensor_parallel_size,
        dtype=origin.dtype or model.dtype,
        engine=origin.engine or "unknown",
        engine_version=origin.engine_version or "unknown",
        law=found.law,
        domain=domain(samples),
        client=target.client,
        server={**origin.server, **target.server},
        kv_bytes_per_token=model.kv_bytes_per_token(parallel=ParallelSpec(origin.tensor_parallel_size)),
        device_memory_bytes=memory_bytes,
        residuals=found.residuals,
        held_out=held_out.document(),
        provenance=_provenance(samples, target, found, rates(found.law, model, gpu, origin.tensor_parallel_size), told),
        model_config=config,
    )
    return Calibration(profile, samples, found, held_out, scores, told, model, gpu)


def domain(samples: Samples) -> Domain:
    """Ranges of the samples' totals; contexts and pairs from 0, as every step without chunks or decodes has none."""
    filled = fill(samples, {})

    def span(name: str, low: float | None = None) -> tuple[float, float]:
        column = getattr(filled, name)
        return float(column.min()) if low is None else low, float(column.max())

    return Domain(span("num_tokens"), span("num_seqs"), span("decode_context", 0.0), span("chunk_pairs", 0.0))


def padded(samples: Samples, graphs: Graphs) -> Samples:
    """Samples that do not say what graph served them, as an engine with such graphs would have run them."""
    unknown = samples.graph == GRAPH_UNKNOWN
    pad = graphs.padded
    tokens = [pad(int(n), int(c)) for n, c in zip(samples.num_tokens, samples.chunk_tokens, strict=True)]
    largest = graphs.sizes[-1] if graphs.sizes else 0
    by_chunks = np.where(samples.chunk_tokens > 0, PIECEWISE_GRAPH if graphs.mixed else NO_GRAPH, FULL_GRAPH)
    graph = np.where(samples.num_tokens > largest, NO_GRAPH, by_chunks)
    return replace(
        samples,
        padded_tokens=np.where(unknown, tokens, samples.padded_tokens).astype(float),
        graph=np.where(unknown, graph, samples.graph),
        origins=tuple(
            replace(origin, capture_sizes=origin.capture_sizes or graphs.sizes) for origin in samples.origins
        ),
    )


def _graphs(samples: Samples) -> Graphs:
    """The served steps' graphs."""
    served = samples.where(samples.state == SUSTAINED)
    sizes = sorted({size for origin in samples.origins for size in origin.capture_sizes})
    return Graphs(tuple(sizes), mixed=bool((served.graph == PIECEWISE_GRAPH).any()))


def _model(target: Target, origin: Origin) -> tuple[ModelSpec, Mapping[str, Any]]:
    """The model's sizes, and its config.json where the catalogue does not have it."""
    named = target.model or origin.model
    if not target.model and origin.model_config and origin.model not in model_names():
        config = dict(origin.model_config)
        return ModelSpec.from_hf_config(config, name=named or "model", dtype=origin.dtype or "auto"), config
    if not named:
        raise InputError(field="--model", expected="a name or a config.json, as the samples name no model")
    return model_spec(named, dtype=origin.dtype or "auto"), {}


def _gpu(target: Target, origin: Origin) -> GpuSpec | None:
    if target.gpu:
        return gpu_spec(target.gpu)
    if origin.device.lower() in gpu_names():
        return gpu_spec(origin.device)
    known = {gpu_spec(name).device_name.lower(): name for name in gpu_names()}
    name = known.get(origin.device.lower())
    return None if name is None else gpu_spec(name)


def _memory_bytes(gpu: GpuSpec | None, origin: Origin) -> int:
    measured = origin.notes.get("device_memory_bytes")
    if isinstance(measured, int) and measured > 0:
        return measured
    if gpu is None:
        told = f"one of {', '.join(gpu_names())}, as the samples do not say how much memory {origin.device!r} has"
        raise InputError(field="--gpu", expected=told)
    return gpu.memory_bytes


def _confounded(found: Fit) -> dict[str, str]:
    if not found.confounded:
        return {}
    listed = "; ".join(" with ".join(group) for group in found.confounded)
    return {"told together only": f"{listed}: the samples fix a combination of them, each alone is uncertain"}


def _poor(held_out: HeldOut) -> dict[str, str]:
    if not held_out.regimes or held_out.score < _POOR:
        return {}
    return {
        "worth": f"the mean held-out error is {percent(held_out.score)}: these steps scatter more than any law can say,"
        " or do not follow this one. Time them again, on a machine that does nothing else, before you use the profile"
    }


_POOR = 0.15


def _provenance(
    samples: Samples, target: Target, found: Fit, implied: Sequence[Any], told: Mapping[str, str]
) -> dict[str, Any]:
    contexts = {name: value for name, value in found.values.items() if name not in found.standard_errors or value}
    return {
        "command": target.command,
        "date": datetime.now(tz=UTC).date().isoformat(),
        "elpase": __version__,
        "sources": dict(target.sources) or {f"samples {i + 1}": _told(o) for i, o in enumerate(samples.origins)},
        "samples": len(samples),
        "notes": {**target.notes, **told},
        "clock_ratios": {state: round(ratio, 4) for state, ratio in found.clock_ratios.items()},
        "mean_contexts": {n: round(v, 1) for n, v in contexts.items() if n.startswith("mean context")},
        "standard_errors": {name: float(f"{value:.2g}") for name, value in found.standard_errors.items()},
        "implied": {
            f"{rate.what}, {rate.unit}": {
                "value": float(f"{rate.per_s:.4g}"),
                "share of the device's limit": _share(rate),
            }
            for rate in implied
        },
    }


def _share(rate: Any) -> float | None:
    return None if rate.share is None else round(rate.share, 3)


def _told(origin: Origin) -> dict[str, Any]:
    """Of an origin what a reader of the profile wants; model and server stand elsewhere in it."""
    told = {
        "device": origin.device,
        "engine": f"{origin.engine} {origin.engine_version}".strip(),
        "driver": origin.driver,
        "versions": dict(origin.versions),
        "date": origin.date,
        "command": origin.command,
        "notes": dict(origin.notes),
    }
    return {name: value for name, value in told.items() if value}
