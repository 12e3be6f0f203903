"""One session on a GPU machine, prepared: grid, fit and closed-loop run of an 8B and of a 14B model.

    python -m calibrate.gpu_session OUT            about 7 minutes of one GPU; needs torch, not vLLM
    python -m calibrate.gpu_session OUT --rehearse the same on a CPU with tiny models, in under a minute

Not a verb: it only calls them, each model in a process of its own with a time limit, so that one that fails costs the
other nothing. OUT gets, for each model, its samples, profile and comparison, and one log: seven files to bring home.
The reports are made from the samples afterwards (`elpase calibrate fit`), when no GPU waits.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT_S = 460.0
"""For all of it; a machine that is lent for a while is not to be overdrawn."""

_CALL = "from sim.cli.main import main; main()"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure for one model, and for how long. Seconds, tokens, requests."""

    model: str
    name: str
    calibrate_s: float
    limit_s: float
    """After which it is stopped; what it has timed by then is kept."""
    workload: Sequence[str]
    reach: Sequence[str]
    device: str = "cuda"
    config: dict[str, Any] = field(default_factory=dict)
    """Of a model that is not in the catalogue."""

    def command(self, out: Path) -> list[str]:
        """The verb's words."""
        files = {"--samples": "parquet", "--save-profile": "profile.json"}
        placed = [word for flag, kind in files.items() for word in (flag, str(out / f"{self.name}.{kind}"))]
        how = ["--model", self.model, "--device", self.device, "--calibrate-s", str(self.calibrate_s), "--repeats", "2"]
        return ["calibrate", "run", "random", *how, *placed, *self.reach, *self.workload, "--json"]


_WORKLOAD = (
    "--num-prompts", "300", "--max-concurrency", "64", "--random-input-len", "512", "--random-output-len", "128",
    "--random-range-ratio", "0.5", "--max-num-batched-tokens", "2048", "--max-num-seqs", "128",
)  # fmt: skip
_REACH = ("--max-tokens", "16384", "--max-seqs", "512", "--max-context", "32768")

GPU_PLANS = (
    Plan("llama-3.1-8b", "torch-llama-3.1-8b", 110.0, 220.0, _WORKLOAD, _REACH),
    Plan("qwen3-14b", "torch-qwen3-14b", 110.0, 240.0, _WORKLOAD, _REACH),
)

_TINY: dict[str, Any] = {
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 2,
    "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 512, "tie_word_embeddings": True,
}  # fmt: skip
_TINY_WORKLOAD = (
    "--num-prompts", "12", "--max-concurrency", "4", "--random-input-len", "32", "--random-output-len", "8",
    "--max-num-batched-tokens", "64", "--max-num-seqs", "8", "--threads", "1", "--kv-gib", "0.01",
)  # fmt: skip
_TINY_REACH = ("--max-tokens", "128", "--max-seqs", "8", "--max-context", "128")

REHEARSAL = tuple(
    Plan(
        f"{family}-tiny.json", f"torch-{family}-tiny", 9.0, 120.0, _TINY_WORKLOAD, _TINY_REACH, "cpu",
        {"model_type": family, **_TINY},
    )
    for family in ("llama", "qwen3")
)  # fmt: skip


def run(plans: Sequence[Plan], out: Path, limit_s: float = LIMIT_S) -> list[str]:
    """Carry the plans out, one after the other; names of those that failed or had no time left."""
    out.mkdir(parents=True, exist_ok=True)
    started_s = time.monotonic()
    failed = []
    with (out / "session.log").open("w", encoding="utf-8") as log:
        _note_gpu(log)
        for plan in plans:
            left_s = limit_s - (time.monotonic() - started_s)
            if left_s < plan.calibrate_s or not _carry_out(plan, out, log, min(plan.limit_s, left_s)):
                failed.append(plan.name)
        _note_gpu(log)
    return failed


def _carry_out(plan: Plan, out: Path, log: TextIO, limit_s: float) -> bool:
    """One model; whether it went well."""
    words = plan.command(out)
    if plan.config:
        config = out / plan.model
        config.write_text(json.dumps(plan.config), encoding="utf-8")
        words[words.index(plan.model)] = str(config)
    print(f"elpase {' '.join(words)}", file=log, flush=True)
    started_s = time.monotonic()
    with (out / f"{plan.name}.run.json").open("w", encoding="utf-8") as result:
        try:
            code = subprocess.run(
                [sys.executable, "-c", _CALL, *words], stdout=result, stderr=log, timeout=limit_s, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
    took = f"{time.monotonic() - started_s:.0f} s"
    print(f"{plan.name}: {'done' if code == 0 else f'failed ({code})'} after {took}", file=log, flush=True)
    return code == 0


def _note_gpu(log: TextIO) -> None:
    """Clocks, power and temperature, where there is somebody to ask."""
    asked = "name,driver_version,clocks.sm,clocks.mem,power.draw,power.limit,temperature.gpu,memory.used"
    try:
        told = subprocess.run(
            ["nvidia-smi", f"--query-gpu={asked}", "--format=csv"], capture_output=True, text=True, check=False
        ).stdout
    except FileNotFoundError:
        told = "no nvidia-smi\n"
    log.write(told)
    log.flush()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="Grid, fit and closed-loop run of an 8B and a 14B model on one GPU.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--rehearse", action="store_true", help="tiny models on a CPU")
    said = parser.parse_args()
    failed = run(REHEARSAL if said.rehearse else GPU_PLANS, said.out)
    sys.exit(f"failed: {', '.join(failed)}; see {said.out / 'session.log'}" if failed else 0)


if __name__ == "__main__":
    main()
