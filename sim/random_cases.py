"""Random scheduler cases in the format of recorded ones, for comparing with a vLLM that somebody has.

Not for workloads: a case is small and mean. The one idea: mixes of all features find what nobody thought of, *regimes*
squeeze single rules: those that mixes were seen to miss, as mutants of the core survived them.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from sim.conformance import OUTPUT_CONTENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Case = dict[str, Any]

REGIMES = ("mix", "tight", "priority", "turns", "drafts", "padding", "slots", "chunks", "offload")


def random_cases(count: int, seed: int) -> Iterator[Case]:
    """`count` cases drawn with `seed`, over all regimes in turn; the same on every machine."""
    for index in range(count):
        regime = REGIMES[index % len(REGIMES)]
        rng = random.Random(f"{seed}/{index}/{regime}")
        yield _Draw(rng, regime).case(f"{regime}-{seed}-{index}")


class _Draw:
    """Draws one case."""

    def __init__(self, rng: random.Random, regime: str) -> None:
        self._rng = rng
        self._regime = regime

    def case(self, name: str) -> Case:
        config = self._config()
        return {"case": name, "config": config, "requests": self._requests(config)}

    def _chance(self, share: float) -> bool:
        return self._rng.random() < share

    def _config(self) -> dict[str, Any]:
        rng, regime = self._rng, self._regime
        block_size = rng.choice([1, 2, 8, 16, 16])
        drafts = rng.choice([1, 2, 3, 5]) if self._speculates() else 0
        length = rng.choice([64, 128, 256, 512])
        if regime == "padding":  # one token behind whole blocks, right where its padding stops fitting
            block_size = rng.choice([8, 16])
            length = block_size * rng.randint(3, 8) + drafts + 1 + rng.choice([-1, 0, 0, 1])
        seqs = rng.choice([1, 2, 3, 4, 8, 24])
        rows = drafts + 2 if drafts else 1
        budget = max(seqs, rows, rng.choice([8, 16, 24, 50, 100, 300, 1000]))
        if regime == "slots":  # a row more or less must matter
            seqs = rng.choice([3, 4, 6])
            budget = max(seqs, rows, seqs * rows - rng.randint(0, rows))
        chunked = regime == "chunks" or self._chance(0.85)
        if not chunked:
            budget = max(budget, length)
        config: dict[str, Any] = {
            "max_num_batched_tokens": budget,
            "max_num_seqs": seqs,
            "max_model_len": length,
            "block_size": block_size,
            "num_gpu_blocks": self._blocks(-(-length // block_size)),
            "policy": "priority" if regime in ("priority", "slots") or self._chance(0.3) else "fcfs",
            "enable_chunked_prefill": chunked,
            "enable_prefix_caching": regime in ("turns", "padding") or self._chance(0.6),
            "async_scheduling": self._chance(0.5),
            "scheduler_reserve_full_isl": self._chance(0.6),
            "watermark": rng.choice([0.0, 0.0, 0.02, 0.1, 0.3]),
            "long_prefill_token_threshold": self._threshold(drafts, length),
        }
        if drafts:
            config["num_speculative_tokens"] = drafts
            method = "draft_model" if regime == "slots" else rng.choice(["ngram", "eagle", "draft_model"])
            if method != "ngram":
                config["spec_method"] = method
        if regime == "offload":
            config |= {
                "kv_preemption": "offload",
                "num_host_blocks": rng.choice([1, 3, 10, 40, 1000]),
                "offload_prompt_only": self._chance(0.5),
            }
        if config["long_prefill_token_threshold"] and self._chance(0.4):
            config["long_prefill_token_threshold_adaptive"] = True
        if self._chance(0.2):
            config["max_num_active_seqs"] = rng.randint(1, seqs)
        if self._chance(0.2):
            config["max_num_scheduled_tokens"] = rng.randint(max(rows, budget // 3), budget)
        return config

    def _speculates(self) -> bool:
        return self._regime in ("drafts", "padding", "slots") or self._chance(0.35)

    def _blocks(self, longest: int) -> int:
        """From just enough for one longest request, with the null block, to plenty."""
        tight = self._regime in ("tight", "priority", "slots") or self._chance(0.4)
        return longest + 1 + self._rng.choice([0, 1, 3, longest // 2] if tight else [longest, 3 * longest, 8 * longest])

    def _threshold(self, drafts: int, length: int) -> int:
        """0, or one that a padded decode fits into: below that vLLM fails an assertion."""
        if self._regime != "chunks" and self._chance(0.6):
            return 0
        return min(length, max(1 + drafts, self._rng.choice([1, 2, 5, 16, 40])))

    def _requests(self, config: Mapping[str, Any]) -> list[Case]:
        requests: list[Case] = []
        step = 0
        for index in range(self._rng.randint(3, 30)):
            step += self._rng.choice([0, 0, 1, 2, 7, 25])
            requests.append(self._request(index, step, requests, config))
        return requests

    def _request(self, index: int, step: int, earlier: list[Case], config: Mapping[str, Any]) -> Case:
        rng, length = self._rng, config["max_model_len"]
        prompt = self._prompt(index, earlier, config)
        known = sum(n for _, n in prompt)
        # Outputs that run into max_model_len are cut by vLLM itself.
        output = rng.choice([1, 2, 5, 16, 17, 40, 90])
        request: Case = {
            "id": f"r{rng.randrange(1000)}x{index}",
            "arrival_step": step,
            # Ties only now and then: with the gate off two equal requests can preempt each other for ever.
            "arrival_time": float(index // 2 if self._regime == "tight" and self._chance(0.1) else index),
            "prompt": prompt,
            "max_tokens": output if self._chance(0.3) else max(1, min(output, length - known)),
            "priority": rng.choice([0, 0, 1, 2, 5]) if config["policy"] == "priority" else 0,
        }
        if self._regime in ("priority", "slots"):
            request["priority"] = max(0, 9 - index // 2 + rng.choice([0, 1]))  # better ones come later
        if self._chance(0.15):
            request["stop_at"] = rng.randrange(request["max_tokens"])
        if self._chance(0.1):
            request["abort_step"] = step + rng.choice([0, 1, 3, 10, 40])
        return request

    def _prompt(self, index: int, earlier: list[Case], config: Mapping[str, Any]) -> list[list[int]]:
        """Pieces `[content_id, n]`, together shorter than max_model_len."""
        rng, block_size, length = self._rng, config["block_size"], config["max_model_len"]
        if self._regime == "padding" and self._chance(0.8):
            whole = (length - 2) // block_size - rng.choice([0, 0, 1])
            pieces = [[1, max(1, whole) * block_size], [100 + index, 1]]
        elif self._regime in ("turns", "mix", "offload") and earlier and self._chance(0.6):
            parent = rng.randrange(len(earlier))
            answered = earlier[parent]["max_tokens"]
            pieces = [list(piece) for piece in earlier[parent]["prompt"]]
            pieces.append([OUTPUT_CONTENT + parent, max(1, answered - rng.choice([0, 1, block_size]))])
            pieces.append([100 + index, rng.choice([1, 3, block_size])])
        else:
            shared = rng.choice([0, block_size, 2 * block_size, 3 * block_size + 1])
            own = rng.choice([1, 2, block_size, block_size + 1, 40, length // 2, length])
            pieces = [[rng.choice([1, 2, 3]), shared], [100 + index, own]]
        prompt: list[list[int]] = []
        room = length - 1
        for content_id, n in pieces:
            if min(n, room) > 0:
                prompt.append([content_id, min(n, room)])
                room -= min(n, room)
        return prompt
