"""Plausible runs for the reports, made by a toy server: far from vLLM's rules, but its frames add up as real ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest

from sim.report.frames import Frames, Itls

REQUEST_S, RESPONSE_S = 0.012, 0.008
BLOCK = 16


@dataclass
class ToyRequest:
    arrival_s: float
    prompt: int
    output: int
    send_s: float = math.nan
    scheduled_s: float = math.nan
    computed: int = 0
    preemptions: int = 0
    recomputed: int = 0
    status: str = "unfinished"
    error: str = ""
    times_s: list[float] = field(default_factory=list)

    @property
    def known(self) -> int:
        return self.prompt + len(self.times_s)

    def blocks(self, extra: int = 0) -> int:
        return -(-(self.computed + extra) // BLOCK)


@dataclass
class ToyServer:
    """First come, first served in chunks of at most `budget` tokens; the newest gives way when blocks run out."""

    blocks: int = 18038
    seats: int = 128
    budget: int = 2048
    cap: int | None = None
    stop_s: float = math.inf
    max_model_len: int = 20_000
    step_s: float = 0.011

    def run(self, todo: list[ToyRequest]) -> Frames:
        self.now_s, self.free, self.flight = 0.0, self.blocks - 1, 0
        self.pending, self.waiting, self.running, self.rows = list(todo), [], [], []
        while self.pending or self.waiting or self.running:
            self.take_arrivals()
            if not self.waiting and not self.running:
                if self.pending:
                    self.now_s = max(self.now_s, self.pending[0].arrival_s + REQUEST_S)
                continue
            self.step()
            if self.now_s > self.stop_s:
                break
        return self.frames(todo)

    def take_arrivals(self) -> None:
        while self.pending and (self.cap is None or self.flight < self.cap):
            r = self.pending[0]
            send_s = max(r.arrival_s, self.now_s - REQUEST_S) if self.cap is not None else r.arrival_s
            if send_s + REQUEST_S > self.now_s:
                return
            self.pending.pop(0).send_s = send_s
            if r.prompt + r.output > self.max_model_len:
                r.status, r.error = "rejected", f"{r.prompt} prompt tokens do not fit {self.max_model_len}"
            else:
                self.waiting.append(r)
                self.flight += 1

    def step(self) -> None:
        budget, plan, preempted, admitted, limit = self.budget, [], 0, 0, "nothing"
        for r in list(self.running):
            if r not in self.running:
                continue
            n = min(r.known - r.computed, budget)
            while n and r.blocks(n) - r.blocks() > self.free:
                victim = self.running.pop()
                plan = [entry for entry in plan if entry[0] is not victim]
                self.free += victim.blocks()
                victim.recomputed += victim.computed
                victim.preemptions, victim.computed = victim.preemptions + 1, 0
                self.waiting.insert(0, victim)
                preempted += 1
                if victim is r:
                    n = 0
            if n:
                self.free -= r.blocks(n) - r.blocks()
                plan.append((r, n))
                budget -= n
        while not preempted and self.waiting and budget and len(self.running) < self.seats:
            r = self.waiting[0]
            if -(-r.known // BLOCK) > self.free:
                limit = "blocks"
                break
            self.running.append(self.waiting.pop(0))
            r.scheduled_s = r.scheduled_s if r.scheduled_s == r.scheduled_s else self.now_s
            n = min(r.known - r.computed, budget)
            self.free -= r.blocks(n) - r.blocks()
            plan.append((r, n))
            budget -= n
            admitted += 1
        if self.waiting and limit == "nothing":
            limit = "preemption" if preempted else "tokens" if not budget else "seqs"
        self.finish(plan, preempted, admitted, limit)

    def finish(self, plan: list[tuple[ToyRequest, int]], preempted: int, admitted: int, limit: str) -> None:
        prefill = sum(n for _, n in plan if n > 1)
        end_s = self.now_s + self.step_s + 1e-4 * len(plan) + 3.3e-5 * prefill
        row = {"start_s": self.now_s, "end_s": end_s, "host_s": 0.002, "num_tokens": sum(n for _, n in plan)}
        row |= {"num_seqs": len(plan), "prefill_tokens": prefill, "decodes": sum(n == 1 for _, n in plan), "sampled": 0}
        row |= {"running": len(self.running), "waiting": len(self.waiting), "free_blocks": self.free}
        row |= {
            "admitted": admitted,
            "preempted": preempted,
            "hit_tokens": 0,
            "extrapolated": prefill > 1900,
            "limit": limit,
        }
        for r, n in plan:
            r.computed += n
            if r.computed == r.known:
                r.times_s.append(end_s + RESPONSE_S)
                row["sampled"] += 1
            if len(r.times_s) == r.output:
                self.running.remove(r)
                self.free += r.blocks()
                self.flight -= 1
                r.status = "finished"
        self.rows.append(row)
        self.now_s = end_s

    def frames(self, todo: list[ToyRequest]) -> Frames:
        records = [
            {"request_id": f"toy-{i}", "priority": 0, "arrival_s": r.arrival_s, "send_s": r.send_s,
             "queued_s": math.nan if r.status == "rejected" else r.send_s + REQUEST_S, "scheduled_s": r.scheduled_s,
             "first_token_s": r.times_s[0] if r.times_s else math.nan,
             "finish_s": r.times_s[-1] if r.status == "finished" else math.nan,
             "prompt_tokens": r.prompt, "output_tokens": len(r.times_s), "cached_tokens": 0,
             "preemptions": r.preemptions, "recomputed_tokens": r.recomputed, "status": r.status, "error": r.error}
            for i, r in enumerate(todo)
        ]  # fmt: skip
        gaps = [np.diff(r.times_s) for r in todo]
        offsets = np.concatenate(([0], np.cumsum([len(g) for g in gaps]))).astype(np.int64)
        meta = {"elpase_version": "0.1.0", "vllm_semantics": "0.32", "profile": "toy", "seed": 7, "trace": "toy"}
        meta |= {"num_gpu_blocks": self.blocks, "max_concurrency": self.cap, "response_s": RESPONSE_S}
        meta |= {"config": {"max_num_seqs": self.seats, "max_num_batched_tokens": self.budget}}
        meta |= {"partial": self.stop_s < math.inf}
        return Frames(
            _table(records, REQUESTS), Itls(np.concatenate([*gaps, []]), offsets), _table(self.rows, STEPS), meta
        )


REQUESTS = ["request_id", "priority", "arrival_s", "send_s", "queued_s", "scheduled_s", "first_token_s", "finish_s",
            "prompt_tokens", "output_tokens", "cached_tokens", "preemptions", "recomputed_tokens", "status",
            "error"]  # fmt: skip
STEPS = ["start_s", "end_s", "host_s", "num_tokens", "num_seqs", "prefill_tokens", "decodes", "sampled", "running",
         "waiting", "free_blocks", "admitted", "preempted", "hit_tokens", "extrapolated", "limit"]  # fmt: skip


def _table(records: list[dict[str, object]], columns: list[str]) -> pd.DataFrame:
    """Typed columns, even of an empty run."""
    kinds = {"request_id": "str", "status": "str", "error": "str", "limit": "str", "extrapolated": "bool"}
    table = pd.DataFrame(records, columns=columns)
    return table.astype({c: kinds.get(c, "float64" if c.endswith("_s") else "int64") for c in columns})


def make_toy_run(
    requests: int = 60, rate: float = 8.0, prompt: int = 800, output: int = 60, **server: object
) -> Frames:
    """`requests` at a Poisson `rate` per second, lengths lognormal around `prompt` and `output` tokens."""
    rng = np.random.default_rng(7)
    arrivals_s = np.cumsum(rng.exponential(1 / rate, requests))
    prompts = np.maximum(1, rng.lognormal(math.log(prompt), 0.6, requests)).astype(int)
    outputs = np.maximum(1, rng.lognormal(math.log(output), 0.6, requests)).astype(int)
    todo = [ToyRequest(float(a), int(p), int(o)) for a, p, o in zip(arrivals_s, prompts, outputs, strict=True)]
    return ToyServer(**server).run(todo)


@pytest.fixture(scope="session")
def toy_run():
    """The maker of runs: `toy_run(requests=..., rate=..., prompt=..., output=..., **ToyServer's fields)`."""
    return make_toy_run
