"""The proof of conformance works: break one rule of the core, and the recorded decisions notice.

A mutant is a copy of the core with one line of its source changed. One that no recorded case notices would mean that
the recorded cases do not cover that rule.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import sim.core
from sim.conformance import compare, read_cases

CORE = Path(sim.core.__file__).parent
TESTS = Path(__file__).parents[2]
GOLDEN, RECORDED = TESTS / "golden", TESTS / "recorded"

MUTANTS = {
    # name: (file, what stands there, what the mutant says, files of golden or recorded that aim at the rule)
    "fcfs preempts the first admitted": ("scheduler", "return self.running[-1]", "return self.running[0]", "pressure"),
    "priority ties: the last of equals goes": (
        "scheduler",
        "max(self.running, key",
        "max(reversed(self.running), key",
        "ties",
    ),
    "priority victims ignore the arrival time": (
        "scheduler",
        "(request.priority, request.arrival_time))",
        "request.priority)",
        "priority midprio",
    ),
    "waiting ties go by time of insertion": (
        "request_queue",
        "request.arrival_time, request.request_id, request)",
        "request.arrival_time, f'{len(self._heap):09}', request)",
        "ties",
    ),
    "a preempted request queues at the back": ("scheduler", "self.waiting.prepend(", "self.waiting.add(", "pressure"),
    "requests are admitted after a preemption": ("scheduler", "if step.preempted:\n ", "if False:\n ", "pressure"),
    "a withdrawn victim keeps its tokens": (
        "step_in_making",
        "self._spend(-n, -self.num_draft_slots)",
        "self._spend(0, -n - self.num_draft_slots)",
        "midprio same_step_victim",
    ),
    "a withdrawn victim keeps its draft model's input slot": (
        "step_in_making",
        "self._spend(-n, -self.num_draft_slots)",
        "self._spend(-n, 0)",
        "slots",
    ),
    "a victim stays in the step": ("scheduler", "step.withdraw(victim)", "pass", "midprio same_step_victim"),
    "a victim in the same step loses its hashes": (
        "scheduler",
        "step.withdraw(victim)\n",
        (
            "step.withdraw(victim)\n"
            "                for block in victim.blocks[victim.num_computed_tokens // self.config.block_size:]:\n"
            "                    self.kv_cache_manager.block_pool._findable.pop(block.block_hash, None)\n"
            "                    block.block_hash = None\n"
        ),
        "same_step_victim",
    ),
    "the next in the queue passes a head that does not fit": (
        "scheduler",
        "            return self.kv_cache_manager.what_lacks(request, hit, n)\n",
        (
            "            if len(self.waiting) > 1:\n"
            "                self.waiting.add(self.waiting.pop())\n"
            "            return Limit.BLOCKS\n"
        ),
        "pressure",
    ),
    "without chunks a prompt takes what budget is left": (
        "scheduler",
        "if not self.config.enable_chunked_prefill:",
        "if False:",
        "nochunk basic",
    ),
    "a threshold cuts a request that is alone": ("scheduler", "or live <= 1", "", "smallthr"),
    "the adaptive threshold counts running requests only": (
        "scheduler",
        "max_num_batched_tokens // live)",
        "max_num_batched_tokens // max(1, len(self.running)))",
        "smallthr basic",
    ),
    "the threshold spares running prompts": (
        "scheduler",
        "computed, step.threshold, step.budget, room)",
        "computed, step.budget, room)",
        "smallthr basic",
    ),
    "max_num_active_seqs is ignored": (
        "config",
        "self.max_num_active_seqs or self.max_num_seqs",
        "self.max_num_seqs",
        "basic",
    ),
    "max_num_scheduled_tokens is ignored": (
        "config",
        "self.max_num_scheduled_tokens or self.max_num_batched_tokens",
        "self.max_num_batched_tokens",
        "schedtok",
    ),
    "the watermark is ignored": ("kv_cache_manager", "if anything_running:", "if False:", "wm"),
    "the watermark counts when nothing runs": ("kv_cache_manager", "if anything_running:", "if True:", "wm"),
    "the watermark leaves out the null block": (
        "kv_cache_manager",
        "int(config.watermark * config.num_gpu_blocks)",
        "int(config.watermark * config.usable_blocks)",
        "wm",
    ),
    "the watermark is rounded up": (
        "kv_cache_manager",
        "int(config.watermark * config.num_gpu_blocks)",
        "-int(-config.watermark * config.num_gpu_blocks // 1)",
        "wm pressure",
    ),
    "no full-sequence admission gate": (
        "kv_cache_manager",
        "if self._reserve_full_isl:",
        "if False:",
        "pressure",
    ),
    "the gate looks at the prompt only": (
        "kv_cache_manager",
        "total = max(total, request.num_tokens)",
        "total = max(total, request.num_prompt_tokens)",
        "pressure",
    ),
    "hit blocks that others hold count as needed, too": (
        "kv_cache_manager",
        "needed += sum(block.ref_cnt == 0 for block in hit)",
        "needed += len(hit)",
        "prefix multiturn everything wild",
    ),
    "a whole sequence may hit": (
        "kv_cache_manager",
        "(request.num_tokens - 1) // self._block_size",
        "request.num_tokens // self._block_size",
        "prefix",
    ),
    "a resumed request looks up its prompt only": (
        "kv_cache_manager",
        "range((request.num_tokens - 1) //",
        "range((request.num_prompt_tokens - 1) //",
        "prefix everything multiturn",
    ),
    "blocks are freed head first": ("kv_cache_manager", "reversed(request.blocks)", "request.blocks", "prefix"),
    "blocks are hashed a step late": (
        "kv_cache_manager",
        "self.cache_blocks(request, min(num_tokens, request.num_tokens))",
        "self.cache_blocks(request, min(request.num_computed_tokens, request.num_tokens))",
        "prefix",
    ),
    "hashes are forgotten when a block is freed": (
        "block_pool",
        "            if block.ref_cnt == 0:\n                self.num",
        (
            "            if block.ref_cnt == 0:\n"
            "                if block.block_hash is not None and self._findable.get(block.block_hash) is block:\n"
            "                    del self._findable[block.block_hash]\n"
            "                block.block_hash = None\n"
            "                self.num"
        ),
        "prefix",
    ),
    "hashes outlive the reuse of their block": ("block_pool", "del self._findable[block_hash]", "pass", "prefix"),
    "the most recently used block is evicted": ("block_pool", "popitem(last=False)", "popitem(last=True)", "prefix"),
    "of duplicates the newest is found": (
        "block_pool",
        (
            "            if findable.setdefault(block_hash, block) is not block:\n"
            "                self._duplicates.setdefault(block_hash, []).append(block)\n"
        ),
        (
            "            older = findable.get(block_hash)\n"
            "            findable[block_hash] = block\n"
            "            if older is not None:\n"
            "                self._duplicates.setdefault(block_hash, []).insert(0, older)\n"
        ),
        "prefix multiturn everything wild",
    ),
    "evicting one duplicate forgets all": (
        "block_pool",
        "        if others is None:\n            del self._findable[block_hash]\n",
        "        if True:\n            self._findable.pop(block_hash, None)\n",
        "prefix multiturn everything wild",
    ),
    "identity ignores the text before a block": (
        "block_hash",
        "return hash((parent, content_id, start, size))",
        "return hash((0, content_id, start, size))",
        "prefix",
    ),
    # Speculation
    "rejected drafts stay computed": ("outputs", "request.num_computed_tokens -= rejected", "pass", "spec"),
    "drafts for a prompt in flight are verified": (
        "outputs",
        "0 if request.is_prefill_chunk else drafts",
        "drafts",
        "spec smallthr tinybudget",
    ),
    "drafts may run up to max_model_len": (
        "scheduler",
        "max_model_len - 1 - computed",
        "max_model_len - computed",
        "padlen",
    ),
    "a request with one token left is not padded": (
        "scheduler",
        "return drafts if drafts and",
        "return 0 if drafts and",
        "padlen",
    ),
    "it is padded where the sampled token has no room": (
        "scheduler",
        "num_hit_tokens + 1 + drafts + 1 <= self.config.max_model_len",
        "num_hit_tokens + 1 + drafts <= self.config.max_model_len",
        "padding",
    ),
    "it is padded beside prompts in flight, too": (
        "scheduler",
        "not step.prompt_in_flight and",
        "True and",
        "tinybudget padlen",
    ),
    "it is padded beside newly admitted ones, too": (
        "scheduler",
        "len(step.requests) > len(step.admitted)",
        "len(step.requests) > 0",
        "padlen tinybudget multiturn",
    ),
    "its padding is cut instead of waiting": (
        "scheduler",
        "            return Limit.TOKENS  # rather",
        "            n, drafts = 1, 0  # rather",
        "tinybudget padlen spec",
    ),
    "a drafter has no lookahead slots": (
        "config",
        'return 0 if self.spec_method == "ngram" else self.num_speculative_tokens',
        "return 0",
        "eagle draft_model",
    ),
    "lookahead slots go beyond max_model_len": (
        "kv_cache_manager",
        "min(num_tokens + self._num_lookahead_tokens, self._max_model_len)",
        "num_tokens + self._num_lookahead_tokens",
        "eagle draft_model",
    ),
    "a draft model has no input slots": (
        "config",
        'int(self.spec_method == "draft_model" and self.num_speculative_tokens > 0)',
        "0",
        "draft_model",
    ),
    "EAGLE keeps the last hit block": ("kv_cache_manager", "found.pop()", "pass", "eagle"),
    # Async scheduling
    "a step is scheduled past a certain end": (
        "async_scheduler",
        "        if placeholders:\n",
        "        if False:\n",
        "async",
    ),
    "the end counts drafts as accepted": (
        "async_scheduler",
        "request.num_computed_tokens + 2 - placeholders",
        "request.num_computed_tokens + 1",
        "async_spec",
    ),
    "drafts have no placeholders": ("step_in_making", "+= 1 + self.drafts.get(request, 0)", "+= 1", "async_spec"),
    "a rejection leaves its placeholders": (
        "async_scheduler",
        "request.num_output_placeholders -= rejected",
        "pass",
        "async_spec",
    ),
    "a stale output is dropped": (
        "outputs",
        "request.joined is None and not request.is_finished:",
        "request.joined is None and request.status is Status.RUNNING:",
        "async",
    ),
    "blocks are not hashed when their tokens come back": (
        "async_scheduler",
        "self.kv_cache_manager.cache_blocks(",
        "(lambda *_: None)(",
        "smallblocks",
    ),
    "they are hashed up to tokens that are not known yet": (
        "async_scheduler",
        "request.num_computed_tokens - request.num_output_placeholders)",
        "request.num_computed_tokens)",
        "multiturn everything",
    ),
    # Offloading
    "blocks of generated text are never stored": (
        "offloading",
        "if self.config.offload_prompt_only:\n            most",
        "if True:\n            most",
        "offload",
    ),
    "host memory gives up what was used last": (
        "host_tier",
        "for block_hash, readers in self._readers.items():",
        "for block_hash, readers in reversed(self._readers.items()):",
        "offload",
    ),
    "a finished request has not used its blocks": (
        "host_tier",
        "self._readers.move_to_end(block_hash)",
        "pass",
        "offload",
    ),
    "what somebody loads is loaded once more": (
        "offloading",
        "shared = self.config.enable_prefix_caching and",
        "shared = False and",
        "offload",
    ),
    "what is being stored counts as lost": (
        "offloading",
        "if not self.tier.holds(block_hash):",
        "if not self.tier.is_readable(block_hash):",
        "offload",
    ),
    "a load leaves nothing to prompts in flight": (
        "offloading",
        "sum(map(self._missing_blocks, self._prompts))",
        "0",
        "offload",
    ),
    "a prompt that gets through leaves its slots to a load in the same step": (
        "offloading",
        "self._missing_blocks, self._prompts)",
        "self._missing_blocks, [r for r in self._prompts if r.status is Status.LOADING or r.is_prefill_chunk])",
        "offload",
    ),
    "who waits for a transfer blocks those behind": (
        "offloading",
        "                step.limit = Limit.NOTHING\n",
        "                break\n",
        "offload",
    ),
    "async, a victim may be in flight": (
        "async_offloading",
        "return not self._flies(victim)",
        "return True",
        "offload",
    ),
}


def mutate(folder: Path, monkeypatch, module: str, old: str, new: str):
    """Make `conformance` drive a copy of the core in which `old` reads `new`; returns its way to make a scheduler."""
    name = "mutant_core"
    for source in CORE.glob("*.py"):
        text = source.read_text()
        if source.stem == module:
            assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {source.name}: the list is stale"
            text = text.replace(old, new)
        target = folder / name / source.name
        target.parent.mkdir(exist_ok=True)
        target.write_text(text.replace("sim.core", name))
    for loaded in [loaded for loaded in sys.modules if loaded.split(".")[0] == name]:
        del sys.modules[loaded]
    monkeypatch.syspath_prepend(str(folder))
    core = {part: importlib.import_module(f"{name}.{part}") for part in ("make", "config", "request", "block_hash")}
    monkeypatch.setattr("sim.conformance.Request", core["request"].Request)
    monkeypatch.setattr("sim.conformance.BlockHasher", core["block_hash"].BlockHasher)

    def make_scheduler(settings):
        own = core["config"].SchedulerConfig(
            **{field.name: getattr(settings, field.name) for field in fields(settings)}
        )
        return core["make"].make_scheduler(own)

    return make_scheduler


def is_noticed(make_scheduler, files: str) -> bool:
    for family in files.split():
        folder = GOLDEN if (GOLDEN / f"{family}.jsonl.gz").exists() else RECORDED
        for case in read_cases(folder / f"{family}.jsonl.gz"):
            try:
                difference = compare(case, make_scheduler)
            except AssertionError:  # the core itself has noticed
                return True
            if difference:
                return True
    return False


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_noticed(name, tmp_path, monkeypatch):
    module, old, new, files = MUTANTS[name]
    assert is_noticed(mutate(tmp_path, monkeypatch, module, old, new), files)


def test_an_unbroken_copy_is_not_noticed(tmp_path, monkeypatch):
    """The harness itself changes nothing: a mutant that says the same decides the same."""
    line = "return self.running[-1]"
    assert not is_noticed(mutate(tmp_path, monkeypatch, "scheduler", line, line), "same_step_victim ties")
