"""Derive a built-in workload's numbers from a trace: `python -m workloads.derive_builtin TRACE --name N ...`.

Not needed to use elpase: its results are in `workloads/data`. The one idea: quantiles instead of rows. Outputs are
described apart for each tenth of the prompts, because in the conversation trace several applications mix: prompts of
about 1100 tokens get about 400 back, shorter and longer ones about 100, so that the mean product of prompt and output
is 8 % below that of independent draws while their rank correlation is only 0.07.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.trace import read_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_GRID = (0.0, 0.001, 0.005, 0.01, *(k / 40 for k in range(1, 40)), 0.98, 0.99, 0.995, 0.9975, 0.999, 0.9995, 1.0)
_COARSE_GRID = (0.0, 0.01, *(k / 20 for k in range(1, 20)), 0.975, 0.99, 0.995, 0.999, 1.0)
_GAP_GRID = (*_GRID[:-1], 0.9999, 1.0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the trace and write the JSON file."""
    options = _parser().parse_args(arguments)
    requests = list(read_trace(options.trace))
    arrivals_s = np.array([request.arrival_s for request in requests])
    prompts = np.array([request.prompt_tokens for request in requests])
    outputs = np.array([request.output_tokens for request in requests])
    facts = {
        "name": options.name,
        "origin": {
            "source": f"{Path(options.trace).name}, {options.source}",
            "licence": options.licence,
            "derived": f"quantiles and rates only, by workloads/derive_builtin.py --arrivals {options.arrivals} "
            f"--prompt-bins {options.prompt_bins}",
            "rows": len(requests),
            "duration_s": round(float(arrivals_s[-1] - arrivals_s[0]), 3),
        },
        "num_requests": len(requests),
        "arrivals": _arrivals(np.diff(arrivals_s), options.arrivals),
        "prompt_tokens": _table(prompts, _GRID),
        "output_tokens": _outputs(prompts, outputs, options.prompt_bins),
    }
    Path(options.out).write_text(_json(facts), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m workloads.derive_builtin", description=main.__doc__)
    parser.add_argument("trace", help="path of the trace")
    parser.add_argument("--name", required=True, help="name of the built-in workload")
    parser.add_argument("--out", required=True, help="JSON file to write")
    parser.add_argument("--source", required=True, help="where the trace is published")
    parser.add_argument("--licence", required=True, help="licence of the trace")
    parser.add_argument("--arrivals", choices=("gamma", "gaps"), default="gamma", help="law of the gaps")
    parser.add_argument("--prompt-bins", type=int, default=10, help="kinds of prompts with output laws of their own")
    return parser


def _arrivals(gaps_s: NDArray[np.float64], law: str) -> dict[str, Any]:
    """The gaps' mean and spread; with `gaps`, their quantiles, for pauses that no Gamma law has."""
    variation = float(gaps_s.std() / gaps_s.mean())
    facts = {"rate_per_s": round(1.0 / float(gaps_s.mean()), 5), "gap_variation": round(variation, 4)}
    if law == "gamma":
        return {**facts, "burstiness": round(variation**-2, 4)}
    return {**facts, "q": list(_GAP_GRID), "gap_s": np.quantile(gaps_s, _GAP_GRID).round(6).tolist()}


def _outputs(prompts: NDArray[np.int64], outputs: NDArray[np.int64], bins: int) -> dict[str, Any]:
    upto = np.unique(np.quantile(prompts, np.arange(1, bins) / bins, method="lower"))
    which = np.searchsorted(upto, prompts, side="left")
    grid = _COARSE_GRID if bins > 1 else _GRID
    return {"prompt_upto": upto.tolist(), "laws": [_table(outputs[which == k], grid) for k in range(len(upto) + 1)]}


def _table(tokens: NDArray[np.int64], grid: Sequence[float]) -> dict[str, list[float]]:
    return {"q": list(grid), "tokens": np.rint(np.quantile(tokens, grid)).astype(int).tolist()}


def _json(facts: dict[str, Any]) -> str:
    """Indented, but each list of numbers on one line."""
    lists: list[str] = []

    def shelve(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shelve(part) for key, part in value.items()}
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return [shelve(part) for part in value]
        if isinstance(value, list):
            lists.append(json.dumps(value))
            return f"@{len(lists) - 1}@"
        return value

    text = json.dumps(shelve(facts), indent=2)
    for index, shown in enumerate(lists):
        text = text.replace(f'"@{index}@"', shown)
    return f"{text}\n"


if __name__ == "__main__":
    main()
