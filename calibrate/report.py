"""A calibration's report: Markdown with the errors, the coefficients and what each means, and three pictures.

Not for the profile. The one idea: a reader who knows GPUs can tell from it whether to believe the profile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from calibrate.fit import OPTIONAL
from calibrate.host import host_errors
from calibrate.physics import rates
from calibrate.plots import LAW, PREDICTED, RESIDUALS, plot_law, plot_predicted, plot_residuals
from sim.latency.model import UNITS
from sim.plurals import counted
from sim.report.units import percent, percent_tenths, signed_percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from calibrate.make_profile import Calibration
    from calibrate.samples import Origin

REPORT = "report.md"
FILES = (REPORT, PREDICTED, RESIDUALS, LAW)

_MEANINGS = {
    "step_s": "once per step: launches, norms, sampling, what no row explains",
    "row_s": "per sequence: sampling, input rows, LM head",
    "weight_read_s": "reading all weights once",
    "batch_slowdown": "weights are read T^this times slower for T tokens",
    "token_s": "per token, where arithmetic bounds the GEMMs",
    "sharpness": "of the bend between the two: 1 adds them, infinity takes the larger",
    "context_s": "reading one token's K and V for a decode",
    "mixed_context_s": "on top of it where chunks run in the same step",
    "pair_s": "per query-key pair of a chunk's attention",
    "tile_waste": "share of the last, partly filled tile of 128 tokens that is paid for",
    "elementwise_s": "per token beside the GEMMs: norms, activations, all-reduces",
    "eager_s": "once per step that is not one whole CUDA graph",
    "eager_row_s": "per sequence on top in such a step",
    "host_step_s": "once per step on the host, which the GPU waits for unless scheduling is asynchronous",
    "host_row_s": "per sequence on the host",
}


def write_report(made: Calibration, folder: Path) -> None:
    """Write report.md and its pictures into an existing folder."""
    plot_predicted(made, folder / PREDICTED)
    plot_residuals(made, folder / RESIDUALS)
    plot_law(made, folder / LAW)
    (folder / REPORT).write_text(markdown(made), encoding="utf-8")


def markdown(made: Calibration) -> str:
    """The report's text."""
    parts = [
        f"# Profile {made.profile.name}",
        _what(made),
        "## How well it foretells",
        _foretold(made),
        _errors_table(made),
        f"![Predicted against measured]({PREDICTED})",
        f"![Errors by regime]({RESIDUALS})",
        "## Coefficients",
        _coefficients(made),
        f"![The law over its samples]({LAW})",
        "## Against the device's limits",
        _limits(made),
        "## What the samples cannot tell",
        _bullets(f"**{name}**: {text}." for name, text in made.statements.items()) or "Nothing was left open.",
        "## Domain",
        _domain(made),
        "## Origin",
        *(_origin(number, origin) for number, origin in enumerate(made.samples.origins, 1)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _what(made: Calibration) -> str:
    profile, samples = made.profile, made.samples
    sources = ", ".join(
        f"{int((samples.source == s).sum()):,} from {s or 'an unnamed source'}" for s in np.unique(samples.source)
    )
    sizes = profile.law.graphs.sizes
    fitted = profile.provenance
    graphs = f"{counted(len(sizes), 'CUDA graph')} of 1 to {sizes[-1]} tokens" if sizes else "no CUDA graphs"
    return (
        f"{profile.model} ({profile.dtype}, TP {profile.tensor_parallel_size}) on {samples.origins[0].device}, "
        f"{profile.engine} {profile.engine_version}; {graphs}. {counted(len(samples), 'timed step')}: {sources}. "
        f"Fitted {fitted['date']} by `{fitted['command']}`, elpase {fitted['elpase']}."
    )


def _foretold(made: Calibration) -> str:
    told = made.profile.held_out
    if not told:
        return "Too few different shapes to hold any out: the errors below are the fit's own and say little."
    text = (
        f"Held out, {told['how']} (a block: all steps whose totals lie within the same factor of two), the median error"
        f" is {percent_tenths(told['median_abs'])} and nine of ten steps are within {percent_tenths(told['p90_abs'])}."
    )
    if not made.scores:
        return text
    kept = [name for name in OPTIONAL if name in made.fit.standard_errors]
    tried = "; ".join(f"{name} {100 * score:.2f} %" for name, score in made.scores.items())
    chosen = ", ".join(kept) if kept else "none"
    return f"{text} Optional coefficients kept: {chosen} (mean held-out error of each law that was tried: {tried})."


def _errors_table(made: Calibration) -> str:
    rows = []
    for regime, own in made.profile.residuals.items():
        held = made.held_out.regimes.get(regime)
        kept = [*_sizes(held), signed_percent(held["mean"])] if held else ["-"] * 3
        rows.append([regime, f"{own['samples']:,}", *kept, *_sizes(own)])
    host = host_errors(made.samples, made.fit.values)
    if host.size:
        size = np.abs(host)
        own = {"median_abs": float(np.median(size)), "p90_abs": float(np.quantile(size, 0.9))}
        rows.append(["host seconds", f"{host.size:,}", "-", "-", "-", *_sizes(own)])
    head = ["steps", "samples", "held-out median", "held-out 90 %", "held-out mean", "fit median", "fit 90 %"]
    return _table(head, rows)


def _sizes(errors: Mapping[str, Any]) -> list[str]:
    return [percent_tenths(errors["median_abs"]), percent_tenths(errors["p90_abs"])]


def _coefficients(made: Calibration) -> str:
    rows = []
    for name, unit in UNITS.items():
        value, error = getattr(made.profile.law, name), made.fit.standard_errors.get(name)
        spread = "fixed" if error is None else "at its bound" if error == 0 else f"{error:.2g}"
        rows.append([f"`{name}`", f"{value:.4g}", spread, unit, _MEANINGS[name]])
    others = {n: v for n, v in made.fit.values.items() if n not in UNITS}
    for name, value in others.items():
        error = made.fit.standard_errors.get(name, 0.0)
        unit, meaning = (
            ("tokens", "per decode row") if name.startswith("mean") else ("1", "arithmetic is so much faster")
        )
        rows.append([name, f"{value:.4g}", f"{error:.2g}", unit, meaning])
    return _table(["coefficient", "value", "standard error", "unit", "what it is"], rows)


def _limits(made: Calibration) -> str:
    if made.gpu is None:
        note = f"{made.samples.origins[0].device} is not in the catalogue of GPUs, so only the rates are told."
    else:
        note = f"Limits of one {made.gpu.device_name} ({made.gpu.source})."
    rows = []
    for rate in rates(made.profile.law, made.model, made.gpu, made.profile.tensor_parallel_size):
        scale, unit = (1e9, f"G{rate.unit}") if rate.unit == "B/s" else (1e12, f"T{rate.unit}")
        limit = "-" if rate.limit_per_s is None else f"{rate.limit_per_s / scale:,.0f} {unit}"
        share = "-" if rate.share is None else percent(rate.share) + (" (above the limit)" if rate.share > 1 else "")
        rows.append([rate.what, f"`{rate.coefficient}`", f"{rate.per_s / scale:,.3g} {unit}", limit, share])
    return f"{note}\n\n" + _table(["what", "from", "implied, per GPU", "limit", "share"], rows)


def _domain(made: Calibration) -> str:
    domain = made.profile.domain
    axes = ("num_tokens", "num_seqs", "decode_context", "chunk_pairs")
    return _table(["axis", "from", "to"], [[axis, *(f"{end:,.0f}" for end in getattr(domain, axis))] for axis in axes])


def _origin(number: int, origin: Origin) -> str:
    told: dict[str, Any] = {
        "device": origin.device,
        "engine": f"{origin.engine} {origin.engine_version}".strip(),
        "driver": origin.driver,
        "versions": ", ".join(f"{name} {version}" for name, version in origin.versions.items()),
        "date": origin.date,
        "command": f"`{origin.command}`" if origin.command else "",
        "server": ", ".join(f"{name}={value}" for name, value in origin.server.items()),
        **origin.notes,
    }
    return f"Table {number}:\n\n" + _bullets(
        f"{name}: {value}" for name, value in told.items() if value not in ("", None)
    )


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
