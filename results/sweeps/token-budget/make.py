"""Writes what the study of the token budget runs on: the law of its step times, and bursts, even and random.

`python results/sweeps/token-budget/make.py` writes law.json and bursts/*.csv beside this file; README.md goes on.
"""

from __future__ import annotations

from pathlib import Path

from sim import Profile
from sim.latency import FusedLaw
from workloads.synthetic import stream

HERE = Path(__file__).parent
PROMPT_TOKENS, OUTPUT_TOKENS = 25_000, 32
PHASE_S = 10.0
QUIET_RPS = 0.2
CYCLES = 2
"""Of quiet and burst; a last quiet phase follows. The original's number is not known."""
SEEDS = range(5)


def rates(burst_rps: float) -> list[float]:
    """Requests per second in each phase."""
    return [QUIET_RPS, burst_rps] * CYCLES + [QUIET_RPS]


def even(burst_rps: float) -> list[float]:
    """Arrivals in seconds, evenly spaced in each phase."""
    return [k * PHASE_S + i / rate for k, rate in enumerate(rates(burst_rps)) for i in range(round(rate * PHASE_S))]


def poisson(burst_rps: float, seed: int) -> list[float]:
    """Arrivals in seconds, independent of each other: the same draws for every rate."""
    draws = stream(seed, "arrivals")
    arrivals = []
    # In the clock of a rate of 1, gaps are exponential; each phase runs that clock at its own rate.
    clock, begins = draws.exponential(), 0.0
    for k, rate in enumerate(rates(burst_rps)):
        ends = begins + rate * PHASE_S
        while clock < ends:
            arrivals.append(k * PHASE_S + (clock - begins) / rate)
            clock += draws.exponential()
        begins = ends
    return arrivals


def write(path: Path, arrivals_s: list[float]) -> None:
    """One trace, in elpase's own CSV."""
    rows = [f"{at_s:.6f},{PROMPT_TOKENS},{OUTPUT_TOKENS}" for at_s in arrivals_s]
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n", encoding="utf-8")


def main() -> None:
    """All of it."""
    law = FusedLaw.linear(step_s=18.5e-3, token_s=50.5e-6)
    server = {"async_scheduling": False, "max_model_len": 32768}
    Profile.of_law("law", law, model="llama-3.2-3b", gpu="rtx5090", server=server).save(HERE / "law.json")
    (HERE / "bursts").mkdir(exist_ok=True)
    for burst_rps in (0.4, 1.0):
        write(HERE / f"bursts/even-{burst_rps}.csv", even(burst_rps))
        for seed in SEEDS:
            write(HERE / f"bursts/poisson-{burst_rps}-{seed}.csv", poisson(burst_rps, seed))


if __name__ == "__main__":
    main()
