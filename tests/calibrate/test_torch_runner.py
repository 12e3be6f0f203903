"""The runner: real passes, from a grid step or a served plan to tokens and seconds."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")  # read when torch imports it: its kernels then need no GPU
torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from calibrate.closed_loop import ClosedLoop, WallClock  # noqa: E402  # torch first: without it nothing is here
from calibrate.grid import GridLimits, GridStep  # noqa: E402
from calibrate.harness.decoder_shape import DecoderShape  # noqa: E402
from calibrate.harness.inputs import InputBatch, Piece  # noqa: E402
from calibrate.harness.torch_attention import SdpaAttention, Uploader  # noqa: E402
from calibrate.harness.torch_backends import Backend, Sdpa  # noqa: E402
from calibrate.harness.torch_graphs import DecodeGraphs  # noqa: E402
from calibrate.harness.torch_runner import OutOfMemory, RunnerOptions, TorchRunner, device_facts  # noqa: E402
from calibrate.served_steps import Bursts, padded_by  # noqa: E402
from sim.core.config import SchedulerConfig  # noqa: E402
from sim.report.log import RunLog  # noqa: E402
from workloads import Request  # noqa: E402

CONFIG = {
    "model_type": "qwen3",
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "vocab_size": 97,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}
SHAPE = DecoderShape.from_hf_config(CONFIG, name="tiny")


@pytest.fixture(scope="module")
def runner():
    return TorchRunner(SHAPE, RunnerOptions(num_blocks=100))


def test_a_grid_step_is_timed_so_often(runner):
    seconds = runner.seconds(GridStep(((20, 10),), (30, 40)), repeats=3, limit_s=60.0)
    assert len(seconds) == 3
    assert all(0 < value < 60 for value in seconds)


def test_once_the_time_is_up_one_timing_is_enough(runner):
    assert len(runner.seconds(GridStep((), (30,)), repeats=50, limit_s=0.0)) == 1


def test_a_step_that_the_memory_cannot_hold_is_told_as_such(runner, monkeypatch):
    def explode(*_args):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(runner.decoder, "logits", explode)
    with pytest.raises(OutOfMemory):
        runner.seconds(GridStep((), (30,)), repeats=1, limit_s=1.0)


def test_a_cache_too_small_for_anything_is_told():
    with pytest.raises(OutOfMemory, match="no room for a KV cache"):
        TorchRunner(SHAPE, RunnerOptions(kv_bytes=1000))


def test_a_cache_larger_than_the_memory_is_told():
    with pytest.raises(OutOfMemory, match=r"in .* of memory"):
        TorchRunner(SHAPE, RunnerOptions(kv_bytes=1 << 50))


def test_torch_s_own_words_for_a_full_cpu_are_known(runner, monkeypatch):
    def ask_for_too_much(*_args):
        torch.empty(1 << 60, dtype=torch.uint8)

    monkeypatch.setattr(runner.decoder, "logits", ask_for_too_much)
    with pytest.raises(OutOfMemory, match="out of memory"):
        runner.seconds(GridStep((), (30,)), repeats=1, limit_s=1.0)


def test_kv_bytes_are_used_up_to_the_last_block():
    per_token = 2 * 2 * 2 * 16 * 4
    assert TorchRunner(SHAPE, RunnerOptions(kv_bytes=33 * 16 * per_token + 5)).cache.num_blocks == 33


def _greedy(prompt, count):
    """Generate by computing the whole text anew for each token."""
    runner = TorchRunner(SHAPE, RunnerOptions(num_blocks=100))
    text = list(prompt)
    for _ in range(count):
        batch = InputBatch(1, 128, 16)
        row = batch.add(np.array(text))
        total = -(-len(text) // 16)
        batch.hold(row, list(range(1, total + 1)), total)
        tokens, _ = runner.run(batch.inputs([Piece(row, 0, len(text), samples=True)]))
        text.append(int(tokens[0]))
    return text[len(prompt) :]


@pytest.mark.parametrize("blocks", [100, 9])
def test_the_closed_loop_generates_what_the_model_says(blocks):
    """Chunked prompts, batches of several requests and, with few blocks, preemptions: the same greedy texts."""
    runner = TorchRunner(SHAPE, RunnerOptions(num_blocks=blocks))
    config = SchedulerConfig(
        max_num_batched_tokens=24,
        max_num_seqs=4,
        max_model_len=120,
        num_gpu_blocks=blocks,
        enable_prefix_caching=False,
        scheduler_reserve_full_isl=False,
        async_scheduling=False,
    )
    texts: dict[int, list[int]] = {}

    class Recording:
        vocab_size = runner.vocab_size

        def run(self, inputs):
            tokens, seconds = runner.run(inputs)
            self.last = tokens
            return tokens, seconds

    forward = Recording()
    log = RunLog()

    def note(step):
        order = [at for at in range(len(step.plan.requests)) if at not in step.plan.partial]
        order.sort(key=lambda at: step.plan.num_scheduled_tokens[at] > 1)
        for at, token in zip(order, forward.last.tolist(), strict=True):
            texts.setdefault(int(step.plan.requests[at].request_id), []).append(token)

    requests = [Request(str(i), 0.0, 30 + 3 * i, 20) for i in range(4)]
    ClosedLoop(config, forward, log, WallClock(), on_step=note).serve(requests)
    from calibrate.closed_loop import prompt_tokens

    for row, request in enumerate(requests):
        assert texts[row] == _greedy(prompt_tokens(row, request, SHAPE.vocab_size), 20)
    if blocks < 50:
        assert log.frames({}).requests["preemptions"].sum() > 0


def test_served_steps_know_the_host_s_share(runner):
    limits = GridLimits(64, 8, 64, runner.kv_tokens, 512)
    samples = Bursts(runner, limits, runner.block_size, padded_by(runner)).go(1.0)
    assert {sample.regime for sample in samples} >= {"served, decode"}
    assert all(sample.host_seconds > 0 for sample in samples)
    assert all(sample.seconds > 0 for sample in samples)


def test_warming_up_leaves_nothing_behind(runner):
    runner.warm_up(max_seqs=8, max_tokens=64)
    assert runner.padded(GridStep((), (5, 5, 5))) == (3, "none")


def test_facts_of_a_cpu():
    facts = device_facts("cpu")
    assert facts.device
    assert facts.memory_bytes > 1 << 28
    assert facts.versions["torch"] == torch.__version__
    json.dumps(facts.versions)


class _Replayed(Sdpa):
    """Attends as `sdpa`, from tensors that are filled anew, as a captured kernel does."""

    capturable = True

    def static(self, cache, rows):
        def attention(layer, q, k, v):
            cache.write(layer, rows.slots, k, v)
            out = []
            for i, length in enumerate(rows.lengths.tolist()):
                keys, values = (x[:length] for x in cache.gather(layer, rows.tables[i].long()))
                group = q.shape[1] // keys.shape[1]
                keys, values = (x.repeat_interleave(group, dim=1) for x in (keys, values))
                scores = torch.einsum("hd,mhd->hm", q[i], keys) / q.shape[-1] ** 0.5
                out.append(torch.einsum("hm,mhd->hd", scores.softmax(-1), values))
            return torch.stack(out)

        return attention


class _NoGraph:
    """What a CUDA graph does, without one: the pass again, over the same tensors."""

    def __init__(self, graphs, size):
        self._pass = lambda: graphs._pass(size)
        self.sampled = torch.zeros(size, dtype=torch.int64)

    @property
    def graph(self):
        return self

    def replay(self):
        self.sampled.copy_(self._pass())


def _not_captured(graphs, size):
    return _NoGraph(graphs, size)


@pytest.fixture
def graphs(runner, monkeypatch):
    monkeypatch.setattr(DecodeGraphs, "_usable", staticmethod(lambda _decoder, _backend: True))
    monkeypatch.setattr(DecodeGraphs, "_capture", _not_captured)
    return DecodeGraphs(runner.decoder, runner.cache, Backend("replayed", _Replayed(), 16, {}), (1, 2, 4, 8))


def test_a_padded_decode_samples_what_an_eager_one_does(runner, graphs):
    """Of 3 rows in the graph of 4, and again of 2 after 4, when old rows are still in the tensors."""
    for contexts in ((40, 3, 17), (5, 6, 7, 8), (33, 1)):
        inputs = runner._inputs(GridStep((), contexts))
        upload = Uploader(runner.device)
        with torch.inference_mode():
            attention = SdpaAttention(runner.cache, inputs, upload)
            ints = upload.ints
            eager = runner.decoder.logits(
                ints(inputs.tokens), ints(inputs.positions), ints(inputs.sampled), attention
            ).argmax(-1)
            replayed = graphs.replay(inputs, upload)
        assert replayed.tolist() == eager.tolist()


def test_chunks_and_too_many_rows_are_not_for_graphs(runner, graphs):
    upload = Uploader(runner.device)
    assert graphs.replay(runner._inputs(GridStep(((4, 0),), (5,))), upload) is None
    assert graphs.replay(runner._inputs(GridStep((), (5,) * 9)), upload) is None
    assert [graphs.size_for(rows) for rows in (1, 2, 3, 5, 8, 9)] == [1, 2, 4, 8, 8, None]
