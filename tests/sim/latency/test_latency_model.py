"""The fused law: physics that must hold for any coefficients, and for the shipped ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import InputError
from sim.latency import FusedLaw, Profile, StepShape
from sim.specs import gpu_spec, model_spec

SHIPPED = Profile.load("h100-qwen3-14b").law

LAWS = st.builds(
    FusedLaw,
    step_s=st.floats(0, 1e-2),
    row_s=st.floats(0, 1e-4),
    weight_read_s=st.floats(1e-4, 0.1),
    batch_slowdown=st.floats(0, 0.2),
    token_s=st.floats(1e-7, 1e-3),
    sharpness=st.floats(1, 20),
    context_s=st.floats(0, 1e-6),
    mixed_context_s=st.floats(0, 1e-6),
    pair_s=st.floats(0, 1e-8),
    tile_waste=st.floats(0, 1),
)


def shape(decodes: int, context: int, chunks: int = 0, chunk: int = 0, before: int = 0) -> StepShape:
    """A step of equal rows and equal chunks."""
    return StepShape(
        num_tokens=decodes + chunks * chunk,
        num_seqs=decodes + chunks,
        decode_context=decodes * context,
        chunk_tokens=chunks * chunk,
        chunk_pairs=chunks * chunk * (before + chunk / 2),
        num_sampled=decodes + chunks,
    )


def seconds(law: FusedLaw, step: StepShape) -> float:
    return sum(law.price(step))


MIXES = st.tuples(st.integers(1, 1024), st.integers(1, 32_768), st.integers(1, 8), st.integers(2, 16_384))


@given(LAWS, MIXES)
def test_a_mixed_step_costs_at_most_its_parts(law: FusedLaw, mix: tuple[int, int, int, int]) -> None:
    """Apart the weights are read twice, together once. Only attention kernels for mixed batches work against it."""
    decodes, context, chunks, chunk = mix
    law = replace(law, mixed_context_s=0.0, tile_waste=0.0)
    parts = seconds(law, shape(decodes, context)) + seconds(law, shape(0, 0, chunks, chunk))
    assert seconds(law, shape(decodes, context, chunks, chunk)) <= parts * (1 + 1e-9)


@pytest.mark.parametrize(("prompt", "batch"), [(512, 4), (512, 16), (2048, 4), (4096, 4), (4096, 16), (986, 32)])
def test_a_mixed_step_is_cheaper_than_prefill_plus_decode(prompt: int, batch: int) -> None:
    """Other simulators added the two. The weights, 26 GB of them at 3.35 TB/s at most, are read once: 8 ms less, of
    which the decodes' own arithmetic and attention take back a part."""
    parts = seconds(SHIPPED, shape(batch, 1050)) + seconds(SHIPPED, shape(0, 0, 1, prompt))
    assert seconds(SHIPPED, shape(batch, 1050, 1, prompt)) < parts - 6e-3


@given(LAWS, MIXES, st.sampled_from(["decodes", "context", "chunks", "chunk", "before"]), st.integers(1, 500))
def test_more_work_never_costs_less(law: FusedLaw, mix: tuple[int, int, int, int], what: str, more: int) -> None:
    work = dict(zip(["decodes", "context", "chunks", "chunk"], mix, strict=True), before=0)
    bigger = {**work, what: work[what] + more}
    assert seconds(law, shape(**bigger)) >= seconds(law, shape(**work)) * (1 - 1e-12)


@given(MIXES, st.integers(0, 32_768))
def test_the_shipped_law_never_beats_the_hardware(mix: tuple[int, int, int, int], before: int) -> None:
    """No step, however far outside the fit, is quicker than data-sheet bandwidth and FLOP/s allow; nor is it 4 times
    slower than that and a step's overhead, so the extrapolation is still a roofline."""
    decodes, context, chunks, chunk = mix
    step = shape(decodes, context, chunks, chunk, before)
    gpu, model = gpu_spec("h100"), model_spec("qwen3-14b")
    linear = model.num_parameters - 2 * model.vocab_size * model.hidden_size
    flop = 2 * linear * step.num_tokens
    flop += 4 * model.num_layers * model.num_heads * model.head_size * step.chunk_pairs
    read = 2 * linear + model.kv_bytes_per_token() * step.decode_context
    least = max(flop / gpu.dense_bf16_flop_per_s, read / gpu.bandwidth_bytes_per_s)
    took = seconds(SHIPPED, step)
    assert least < took < 4 * (flop / gpu.dense_bf16_flop_per_s + read / gpu.bandwidth_bytes_per_s) + 0.01


def test_columns_are_priced_as_single_steps() -> None:
    steps = [shape(3, 1000), shape(0, 0, 2, 900), shape(200, 1050, 8, 990), shape(16, 700, 1, 5000)]
    columns = [
        np.array([getattr(step, name) for step in steps], dtype=np.float64)
        for name in ("num_tokens", "num_seqs", "decode_context", "mixed_context", "chunk_pairs")
    ]
    assert SHIPPED.device_s(*columns) == pytest.approx([SHIPPED.price(step).device_s for step in steps], rel=1e-12)


def test_whole_tiles_make_a_staircase() -> None:
    """Prompts of 897 to 1024 tokens cost the same when all of a tile is computed; the next one pays for 128 more."""
    law = FusedLaw(0, 0, 0, 0, 1e-5, 4, 0, 0, 0, tile_waste=1.0)
    assert seconds(law, shape(0, 0, 1, 897)) == pytest.approx(1024e-5)
    assert seconds(law, shape(0, 0, 1, 1024)) == pytest.approx(1024e-5)
    assert seconds(law, shape(0, 0, 1, 1025)) == pytest.approx(1152e-5)


def test_host_time_is_told_apart() -> None:
    law = replace(SHIPPED, host_step_s=2e-3, host_row_s=1e-5)
    step = shape(10, 1000)
    assert law.price(step).host_s == pytest.approx(2.1e-3)
    assert law.price(step).device_s == SHIPPED.price(step).device_s


@pytest.mark.parametrize(
    ("field", "value"), [("token_s", -1e-9), ("sharpness", 0.5), ("tile_waste", 1.5), ("step_s", float("nan"))]
)
def test_impossible_coefficients(field: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{field}: got .*, expected a finite number from "):
        replace(SHIPPED, **{field: value})
