"""A finding about speculation: drafts that cost more than the tokens they bring.

The one idea: the same decodes are priced again with fewer drafts, and none, each with its own tokens per second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sim.plurals import counted
from sim.report.explain.explanation import Finding
from sim.report.explain.facts import MATTERS

if TYPE_CHECKING:
    from sim.report.explain.facts import Facts

_LOSES = 0.98
"""Tokens per second beside those of steps without drafts, below which it is no longer even."""


def find_drafts(facts: Facts) -> Finding | None:
    """Accepted tokens do not pay for drafting and verifying at this many sequences."""
    run, prices, rates = facts.run, facts.prices, facts.run.acceptance_rates
    steps = run.column("num_draft_tokens") > 0
    if prices is None or not rates or run.share(steps) < MATTERS:
        return None
    rows = prices.spread(steps)
    verifying = run.column("num_draft_tokens")[rows] / len(rates)
    plain = run.column("sampled")[rows] - run.column("num_accepted_tokens")[rows]
    seconds = [float(prices.with_drafts(rows, count).sum()) for count in range(len(rates) + 1)]
    tokens = [float((plain + verifying * sum(rates[:count])).sum()) for count in range(len(rates) + 1)]
    pace = [got / took for got, took in zip(tokens, seconds, strict=True)]
    count = len(rates)
    if pace[count] >= _LOSES * pace[0]:
        return None
    best = int(np.argmax(pace))
    drafted, accepted = (int(run.column(f"num_{name}_tokens").sum()) for name in ("draft", "accepted"))
    step_s, plain_s = seconds[count] / len(rows), seconds[0] / len(rows)
    because = (
        (
            f"{accepted:,} of {drafted:,} drafts were accepted: {1 + accepted / drafted * count:.2f} tokens of each"
            f" decode that verifies {count}"
        ),
        (
            f"with {counted(run.mean('decodes', steps), 'decode')} a step takes {step_s * 1e3:,.1f} ms; by the"
            f" profile's law {plain_s * 1e3:,.1f} ms without drafts, so they pay from {step_s / plain_s:.2f} tokens on"
        ),
    )
    gain = f"{pace[best] / pace[count]:.2f} times the tokens per second of these steps"
    change = f"num_speculative_tokens {best}: {gain}" if best else f"no speculative_config: {gain}"
    what = f"Drafts lose: {pace[count] / pace[0]:.2f} times the tokens per second of steps without."
    return Finding("drafts", what, because, (change,), run.share(steps))
