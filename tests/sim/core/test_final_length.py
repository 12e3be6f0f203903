"""How long a request gets: as `max_tokens` and max_model_len say when a scheduler is given it."""

from __future__ import annotations

import pytest

from sim.core.block_hash import OwnTextHasher
from sim.core.config import SchedulerConfig
from sim.core.make import make_scheduler
from sim.core.request import Request
from sim.engine.sampler import sample


def generated(request: Request, *, max_model_len: int = 512, async_scheduling: bool = False) -> int:
    """Tokens that the request has when it is done."""
    config = SchedulerConfig(64, 4, max_model_len, 100, async_scheduling=async_scheduling)
    scheduler = make_scheduler(config)
    scheduler.add_request(request)
    while not request.is_finished:
        plan = scheduler.schedule()
        scheduler.commit(plan, sample(plan))
    return request.num_output_tokens


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_max_tokens_counts_as_it_is_when_the_request_is_added(async_scheduling: bool) -> None:
    request = Request("a", 10, 50, OwnTextHasher(0))
    request.max_tokens = 5
    assert generated(request, async_scheduling=async_scheduling) == 5


def test_the_model_length_is_that_of_the_scheduler_at_hand() -> None:
    request = Request("a", 10, 50, OwnTextHasher(0))
    assert generated(request, max_model_len=16) == 6
    again = Request("a", 10, 50, OwnTextHasher(0))
    again.final_num_tokens = request.final_num_tokens  # of another scheduler
    assert generated(again) == 50
