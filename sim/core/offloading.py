"""Offloading: what is computed is copied to host memory too, and found there when the GPU's cache has lost it.

Mirrors the scheduler's half of vLLM's OffloadingConnector (0.32: distributed/kv_transfer/kv_connector/v1/offloading/
scheduler.py, and what v1/core/sched/scheduler.py does with a connector). Preemption stays by recompute; but a victim's
prompt is in host memory, like everybody's.

- Store: each step, the full blocks of known tokens that its requests will have computed, and host memory has not. By
  default only those of prompts (`offload_prompt_only`). Where host memory is full of blocks that are being read or
  written, it is tried again in the next step. Blocks of a finished request are free at once: a step that would reuse
  them waits for their stores (a *flush*), as does one that preempts a request that is being stored.
- Look up: who waits and holds nothing looks in the GPU's cache, then goes on in host memory. What is being written, or
  loaded by somebody else, is worth waiting for: the request is passed over in this step.
- Load: it gets its blocks, waits beside the queue (LOADING) until they are there, then goes first. There must be room
  for its whole known sequence, and for what it loads beside what prompts in flight still need.

Known not to be as in vLLM: which free blocks a step reuses is not known for text that nobody shares, so a flush comes
when fewer blocks are free than finished requests still have to store, as these are reused last. EAGLE's last block of a
sequence is stored like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sim.core.host_tier import HostTier
from sim.core.request import ABORTED, LOADING, PREEMPTED, RUNNING, WAITING
from sim.core.request_queue import make_queue
from sim.core.scheduler import Scheduler
from sim.core.step import Limit, Transfer

if TYPE_CHECKING:
    from sim.core.block_pool import Block
    from sim.core.config import SchedulerConfig
    from sim.core.request import Request
    from sim.core.request_queue import RequestQueue
    from sim.core.step_in_making import StepInMaking


@dataclass(slots=True)
class _Stored:
    """How far a request has come with host memory."""

    num_blocks: int = 0
    """Leading blocks that were offered to it, or came from it."""
    used: dict[int, int] = field(default_factory=dict)
    """Hash -> position, of blocks that it stored, found stored, or loaded."""
    transfers: dict[int, None] = field(default_factory=dict)
    """Its open ones: one load, or some stores."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A transfer on its way."""

    request: Request
    hashes: list[int]
    is_store: bool


class OffloadingScheduler(Scheduler):
    """Tell it `transfer_done` for each of a plan's loads and stores, some time after the plan."""

    def __init__(self, config: SchedulerConfig, *, cohorts: bool = True) -> None:
        super().__init__(config, cohorts=cohorts)
        self.tier = HostTier(config.num_host_blocks)
        self.loading: RequestQueue = make_queue(config.policy)
        """Requests that hold blocks and wait: for their load, or after it for room in a step."""
        self.transfers: dict[int, _Open] = {}
        self._num_transfers = 0
        self._arrived: set[Request] = set()
        self._being_loaded: set[int] = set()
        self._stored: dict[Request, _Stored] = {}
        self._unstored: set[Request] = set()
        """Running requests with blocks that host memory may lack."""
        drafts = config.num_speculative_tokens
        self._step_slots = 1 + drafts + config.num_lookahead_tokens if drafts else 0
        self._ended: list[Request] = []
        """Finished or aborted since the last step."""
        self._prompts: set[Request] = set()
        """Computed in part or loaded, as of the last step: whoever gets through in this one counts until its end."""

    # -- what the engine asks and says -----------------------------------------------------------------------------

    @property
    def num_held(self) -> int:
        """Requests that wait, loading ones among them."""
        return super().num_held + len(self.loading)

    @property
    def num_host_blocks(self) -> int:
        """Blocks of host memory in use."""
        return self.tier.num_used_blocks

    def held(self) -> list[Request]:
        """Requests that wait, those that load first."""
        return [*self.loading, *super().held()]

    def holding(self) -> list[Request]:
        """Requests with KV blocks: those that load, too, even if aborted."""
        gone = [open_.request for open_ in self.transfers.values() if not open_.is_store and open_.request.is_finished]
        return [*super().holding(), *self.loading, *gone]

    def has_news(self) -> bool:
        """Somebody left since the last step, and host memory is to be told."""
        return bool(self._ended)

    def is_settled(self) -> bool:
        """No transfer is open, none is due, and nobody has left since the last step."""
        return not self.transfers and not self._unstored and not self._ended

    def transfer_done(self, number: int) -> None:
        """A load or store of an earlier plan is over."""
        done = self.transfers.pop(number)
        request = done.request
        del self._stored[request].transfers[number]
        if done.is_store:
            self.tier.end_store(done.hashes)
        else:
            self.tier.end_load(done.hashes)
            self._being_loaded.difference_update(done.hashes)
            if request.is_finished:
                self.kv_cache_manager.free(request)
            else:
                self._arrived.add(request)
        self._forget(request)

    # -- admission -------------------------------------------------------------------------------------------------

    def _schedule_waiting(self, step: StepInMaking) -> None:
        """Who holds blocks goes first; whoever waits for a transfer is passed over."""
        passed_over: list[tuple[RequestQueue, Request]] = []
        while step.limit is None and (self.loading or self.waiting):
            queue = self.loading if self.loading else self.waiting
            if step.budget <= 0:
                step.limit = Limit.TOKENS
            elif len(self.running) >= self.seqs_cap:
                step.limit = Limit.SEQS
            else:
                step.limit = self._resume(step) if queue is self.loading else self._admit_or_load(step)
            if step.limit is Limit.TRANSFER:
                request = queue.pop()
                passed_over.append((self.loading if request.num_blocks else self.waiting, request))
                step.limit = None
        if passed_over and step.limit is None:
            step.limit = Limit.TRANSFER
        for queue, request in reversed(passed_over):
            queue.prepend(request)

    def _resume(self, step: StepInMaking) -> Limit | None:
        """Go on with a request that has been loaded."""
        request = self.loading.peek()
        if request.status is LOADING:
            if request not in self._arrived:
                return Limit.TRANSFER
            self._arrived.remove(request)
            request.status = PREEMPTED if request.num_preemptions else WAITING
            self.kv_cache_manager.cache_blocks(request, request.num_computed_tokens)
            # The last known token is always computed again.
            request.num_computed_tokens = min(request.num_computed_tokens, request.num_tokens - 1)
        return self._admit_stored(self.loading, step)

    def _admit_or_load(self, step: StepInMaking) -> Limit | None:
        """Admit the queue's head, or give it the blocks that it loads first."""
        request = self.waiting.peek()
        stored = self._stored.setdefault(request, _Stored())
        if stored.transfers:
            return Limit.TRANSFER
        hit = self.kv_cache_manager.find_computed_blocks(request)
        hashes = self._find_stored(request, len(hit))
        if hashes is None:
            return Limit.TRANSFER
        queries = request.num_tokens - len(hit) * self.config.block_size
        limit = self._load(request, hit, hashes, step) if hashes else self._admit_stored(self.waiting, step)
        if limit in (None, Limit.TRANSFER):
            step.host_queries += queries
        return limit

    def _admit_stored(self, queue: RequestQueue, step: StepInMaking) -> Limit | None:
        request = queue.peek()
        limit = self._admit(queue, step)
        if limit is None:
            self._unstored.add(request)
            if request.is_prefill_chunk:
                self._prompts.add(request)
        return limit

    def _find_stored(self, request: Request, num_hit: int) -> list[int] | None:
        """Hashes of the blocks that follow its hit in host memory; None where it is too early to tell."""
        if request.block_hasher.own_text and not request.num_preemptions:
            return []
        found: list[int] = []
        early = False
        for index in range(num_hit, request.num_tokens // self.config.block_size):
            block_hash = request.block_hasher.upto(index + 1)[index]
            if not self.tier.holds(block_hash):
                break
            early |= not self.tier.is_readable(block_hash)
            found.append(block_hash)
        shared = self.config.enable_prefix_caching and not self._being_loaded.isdisjoint(found)
        return None if early or shared else found

    def _load(self, request: Request, hit: list[Block], hashes: list[int], step: StepInMaking) -> Limit:
        manager = self.kv_cache_manager
        reserved = manager.blocks_for(self._step_slots) + sum(map(self._missing_blocks, self._prompts))
        num_blocks = len(hit) + len(hashes)
        if not manager.admit_load(request, hit, num_blocks, reserved, anything_running=bool(self.running)):
            return Limit.BLOCKS
        request.status = LOADING
        request.num_computed_tokens = num_blocks * self.config.block_size
        stored = self._stored[request]
        stored.num_blocks = num_blocks
        stored.used.update(zip(hashes, range(len(hit), num_blocks), strict=True))
        self.tier.begin_load(hashes)
        self._being_loaded.update(hashes)
        self._prompts.add(request)
        step.loads.append(self._open(request, hashes, is_store=False))
        return Limit.TRANSFER

    def _missing_blocks(self, request: Request) -> int:
        """What it still needs for its whole known sequence."""
        tokens = min(request.num_tokens, self.config.max_model_len) + self._step_slots
        return max(0, self.kv_cache_manager.blocks_for(tokens) - request.num_blocks)

    # -- stores ----------------------------------------------------------------------------------------------------

    def _after_schedule(self, step: StepInMaking) -> None:
        super()._after_schedule(step)
        self._unstored.difference_update(step.preempted)
        through = [r for r in self._prompts if r.status is RUNNING and not r.is_prefill_chunk]
        self._prompts.difference_update(through, step.preempted)
        if self.transfers:
            self._flush(step)
        if self._unstored:
            self.cohort.settle()  # its members may have had their prompts' last tokens just now
            for request in step.requests:
                if request in self._unstored:
                    self._store(request, request.num_computed_tokens, step)
        for request in self._ended:
            known = max(request.num_prompt_tokens, request.num_tokens - 1)
            self._store(request, request.num_computed_tokens if request.status is ABORTED else known, step)
        for request in self._ended:
            used = self._stored[request].used
            self.tier.use(sorted(used, key=used.__getitem__))
            self._forget(request)
        self._ended.clear()

    def _flush(self, step: StepInMaking) -> None:
        """Stores that this step must wait for before it computes."""
        flushes = [number for request in step.preempted for number in self._stored[request].transfers]
        left = [n for n, open_ in self.transfers.items() if open_.is_store and open_.request.is_finished]
        if sum(len(self.transfers[n].hashes) for n in left) > self.kv_cache_manager.block_pool.num_free_blocks:
            flushes += left
        step.flushes += flushes

    def _store(self, request: Request, num_tokens: int, step: StepInMaking) -> None:
        """Offer the full blocks of its first `num_tokens` tokens that have not been."""
        stored = self._stored[request]
        most = min(num_tokens, request.num_tokens)
        if self.config.offload_prompt_only:
            most = min(most, request.num_prompt_tokens)
        first, last = stored.num_blocks, most // self.config.block_size
        if last > first:
            hashes = request.block_hasher.upto(last)[first:last]
            for position, block_hash in enumerate(hashes, first):
                if self.tier.is_readable(block_hash) or not self.tier.holds(block_hash):
                    stored.used.setdefault(block_hash, position)
            fresh = self.tier.begin_store(hashes)
            if fresh is None:
                return
            stored.num_blocks = last
            if fresh:
                step.stores.append(self._open(request, fresh, is_store=True))
        if self.config.offload_prompt_only and most == request.num_prompt_tokens:
            self._unstored.discard(request)

    def _open(self, request: Request, hashes: list[int], *, is_store: bool) -> Transfer:
        number = self._num_transfers
        self._num_transfers += 1
        self.transfers[number] = _Open(request, hashes, is_store)
        self._stored[request].transfers[number] = None
        return Transfer(number, len(hashes))

    def _drop(self, request: Request) -> None:
        self._ended.append(request)
        self._stored.setdefault(request, _Stored())
        self._unstored.discard(request)
        self._prompts.discard(request)
        if request.status is RUNNING or not request.num_blocks:
            super()._drop(request)
            return
        self.loading.remove(request)
        if request.status is LOADING and request not in self._arrived:
            return  # the load still writes its blocks
        self._arrived.discard(request)
        self.kv_cache_manager.free(request)

    def _forget(self, request: Request) -> None:
        if request.is_finished and request not in self._ended and not self._stored[request].transfers:
            del self._stored[request]
