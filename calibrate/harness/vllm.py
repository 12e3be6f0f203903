"""Times the steps of a real vLLM engine: chooses the waves of requests, has them run, reads what was written down.

Not the part that runs inside vLLM's interpreter (vllm_scripts/engine_steps.py). The one idea: the engine's own
scheduler makes the steps, so shapes are not asked for but brought about: prompts of chosen lengths, then decodes of all
of them, then single prompts that come while the others decode.
"""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

from calibrate.harness.interpreter import clean_environment, last_words
from calibrate.samples import FULL_GRAPH, NO_GRAPH, PIECEWISE_GRAPH, Origin, TimedStep
from sim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from calibrate.harness.interpreter import Interpreter

SOURCE = "vllm"
SCRIPT = Path(__file__).parent / "vllm_scripts" / "engine_steps.py"

_GRAPHS = {"FULL": FULL_GRAPH, "PIECEWISE": PIECEWISE_GRAPH, "NONE": NO_GRAPH}


@dataclass(frozen=True, slots=True)
class Wave:
    """Requests that are sent together, and what happens then."""

    id: str
    prompts: tuple[int, ...]
    """Lengths of prompts that come at once."""
    decode_steps: int = 0
    """Steps of pure decode after their first tokens."""
    mixed: tuple[int, ...] = ()
    """Lengths of prompts that come one by one after that, while the others decode."""


WARM_UP = (Wave("warm-up", (64, 64, 64, 64), 4, (32,)),)

DECODE_STEPS = 8
_CONTEXTS = (128, 512, 2048, 8192, 32768)
_MIXED = (16, 128, 1024)
_ANSWERS = 32
"""Tokens that a wave's requests may grow by."""
_MOST_TOKENS = 262_144
"""Prompt tokens of one wave: with more, most of the time goes into prompts that all look alike."""


def plan_waves(max_model_len: int, max_num_seqs: int) -> list[Wave]:
    """Waves over prompt lengths, decode batches and contexts, ordered so that any beginning covers the whole range."""
    room = max_model_len - _ANSWERS
    lengths = [n for n in _powers(max_model_len - 1) if n <= room]
    prompts = [Wave(f"prompt {n}", (n,)) for n in lengths]
    batches = [n for n in _powers(max_num_seqs) if n < max_num_seqs]
    mixed = tuple(n for n in _MIXED if n <= room)
    decodes = [
        Wave(f"decode {batch} x {context}", (context,) * batch, DECODE_STEPS, mixed)
        for context in _CONTEXTS
        for batch in batches
        if context <= room and batch * context <= _MOST_TOKENS
    ]
    return [wave for both in _interleaved(_ends_first(prompts), _ends_first(decodes)) for wave in both]


def _powers(most: int) -> list[int]:
    """1, 2, 4, ... up to `most`."""
    return [1 << i for i in range(most.bit_length()) if 1 << i <= most]


def _ends_first(waves: Sequence[Wave]) -> list[Wave]:
    """The same waves in another order: fewest and most sequences, shortest and longest first, then without favour."""
    ends: list[Wave] = []
    for size in (lambda w: len(w.prompts), lambda w: w.prompts[0]):
        ends += [min(waves, key=size), max(waves, key=size)]
    rest = [wave for wave in waves if wave not in ends]
    random.Random(0).shuffle(rest)
    return [*dict.fromkeys(ends), *rest]


def _interleaved(*families: Sequence[Wave]) -> Iterator[list[Wave]]:
    for i in range(max(map(len, families))):
        yield [family[i] for family in families if i < len(family)]


@dataclass(frozen=True, slots=True)
class EngineJob:
    """A real engine and where its steps are written. `engine`: arguments of vLLM's EngineArgs."""

    engine: Mapping[str, Any]
    waves: Sequence[Wave]
    out: Path
    """JSON Lines, added to: waves that it holds are not run again."""
    budget_s: float
    environment: Mapping[str, str] = field(default_factory=dict)


def engine_arguments(model: Path, **more: Any) -> dict[str, Any]:
    """Arguments of a synchronous engine with dummy weights and without a prefix cache."""
    return {
        "model": str(model),
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "async_scheduling": False,
        "enable_prefix_caching": False,
        "cudagraph_metrics": True,
        **{name: value for name, value in more.items() if value is not None},
    }


def run_job(vllm: Interpreter, job: EngineJob, on_wave: Callable[[], None]) -> None:
    """Run what is missing of a job; `on_wave` is called after each wave. Raises InputError where the engine fails."""
    done = [record["wave"] for record in read_records(job.out) if "wave" in record]
    left = [wave for wave in job.waves if wave.id not in done]
    for _ in range(len(job.waves) - len(left)):
        on_wave()
    if not left:
        return
    order = job.out.with_suffix(".job.json")
    content = {
        "engine": dict(job.engine),
        "waves": [asdict(wave) for wave in left],
        "warmup": [asdict(wave) for wave in WARM_UP],
        "done": [],
        "budget_s": job.budget_s,
        "out": str(job.out),
    }
    order.write_text(json.dumps(content) + "\n", encoding="utf-8")
    log = job.out.with_suffix(".log")
    try:
        code = _run_script(vllm, order, log, job.environment, on_wave)
    finally:
        order.unlink()
    if code:
        raise InputError(f"vLLM ended with status {code}: {last_words(log)}", file=log)


def _run_script(
    vllm: Interpreter, order: Path, log: Path, environment: Mapping[str, str], on_wave: Callable[[], None]
) -> int:
    env = clean_environment(**{"VLLM_LOGGING_STREAM": "ext://sys.stderr", **environment})
    command = [str(vllm.python), str(SCRIPT), str(order)]
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=env) as process,
    ):
        try:
            for line in cast("IO[bytes]", process.stdout):
                if line.startswith(b"WAVE "):
                    on_wave()
            return process.wait()
        finally:
            process.kill()


# -- reading -----------------------------------------------------------------------------------------------------------


def read_records(out: Path) -> list[dict[str, Any]]:
    """What a job wrote so far; a last line that was cut off is left out."""
    if not out.exists():
        return []
    records = []
    for number, line in enumerate(lines := out.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number < len(lines):
                raise InputError(f"not JSON: {error.msg}", file=out, line=number) from error
    return records


def timed_steps(records: Iterable[Mapping[str, Any]]) -> Iterator[TimedStep]:
    """Samples of a job's records: steps in a row that differ by one token per context are one sample, their median."""
    for record in records:
        for _, alike in groupby(record.get("steps", ()), key=_likeness):
            yield _sample(list(alike))


def _likeness(step: Mapping[str, Any]) -> tuple[Any, ...]:
    """Equal for decodes of the same sequences; no two steps with chunks are alike."""
    rows = step["rows"]
    decoding = all(n == 1 for n, _ in rows)
    return (decoding, len(rows)) if decoding else (decoding, *map(tuple, rows))


def _sample(steps: Sequence[Mapping[str, Any]]) -> TimedStep:
    middle = steps[len(steps) // 2]
    seconds = np.array([step["device_s"] for step in steps])
    median = float(np.median(seconds))
    low, high = np.quantile(seconds, (0.16, 0.84))
    rows = [tuple(row) for row in middle["rows"]]
    return TimedStep.of(
        [(n, c) for n, c in rows if n > 1],
        [c for n, c in rows if n == 1],
        median,
        num_sampled=middle["sampled"],
        padded_tokens=middle["padded"],
        host_seconds=float(np.median([step["host_s"] for step in steps])),
        graph=_GRAPHS.get((middle["graph"] or "").rsplit(".", 1)[-1], ""),
        repeats=len(steps),
        spread=float((high - low) / 2 / median) if len(steps) > 1 else float("nan"),
        source=SOURCE,
    )


def origin(records: Sequence[Mapping[str, Any]], model: str, config: Mapping[str, Any], command: str) -> Origin:
    """Where a job's samples come from. Raises InputError where two starts ran on different things."""
    metas = [record["meta"] for record in records if "meta" in record]
    if any(meta != metas[0] for meta in metas[1:]):
        changed = next(name for name in metas[0] for meta in metas if meta.get(name) != metas[0][name])
        raise InputError(field=changed, value=[meta.get(changed) for meta in metas], expected="the same at every start")
    meta = metas[0]
    server = ("max_num_batched_tokens", "max_num_seqs", "max_model_len", "block_size")
    skipped = {record["wave"]: record["skipped"] for record in records if "skipped" in record}
    return Origin(
        device=meta["device"],
        model=model,
        tensor_parallel_size=meta["tensor_parallel_size"],
        dtype=meta["dtype"],
        engine="vllm",
        engine_version=meta["versions"]["vllm"],
        driver=meta["driver"],
        versions=meta["versions"],
        date=datetime.now(tz=UTC).isoformat(timespec="seconds"),
        command=command,
        model_config=config,
        capture_sizes=tuple(meta["capture_sizes"]),
        server={**{name: meta[name] for name in server}, "async_scheduling": False},
        notes={
            "device_memory_bytes": meta["device_memory_bytes"],
            "num_gpu_blocks": meta["num_gpu_blocks"],
            "threads": meta["threads"],
            "skipped": skipped,
        },
    )
