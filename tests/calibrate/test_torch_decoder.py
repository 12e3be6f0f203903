"""The decoder's numbers: one pass, chunks, decodes and mixtures through the paged cache are all the same."""

from __future__ import annotations

import os

import numpy as np
import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")  # read when torch imports it: its kernels then need no GPU
torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # several threads on a busy machine wait for each other

from calibrate.harness.decoder_shape import DecoderShape  # noqa: E402  # torch first: without it there is nothing here
from calibrate.harness.inputs import InputBatch, Piece  # noqa: E402
from calibrate.harness.torch_attention import PagedCache, SdpaAttention, Uploader  # noqa: E402
from calibrate.harness.torch_backends import plain_attention  # noqa: E402
from calibrate.harness.torch_model import Decoder  # noqa: E402
from sim.errors import InputError  # noqa: E402

CONFIG = {
    "hidden_size": 48,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 3,
    "intermediate_size": 64,
    "vocab_size": 101,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
}
FAMILIES = {
    "llama": {"model_type": "llama", "tie_word_embeddings": False},
    "llama3": {
        "model_type": "llama",
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", "tie_word_embeddings": True},
    "biased": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
}
BLOCK = 4


def _shape(family, **other):
    return DecoderShape.from_hf_config({**CONFIG, **FAMILIES[family], **other}, name=family)


class Server:
    """A decoder, its cache, and sequences whose blocks lie anywhere."""

    def __init__(self, shape, seed=0):
        self.decoder = Decoder(shape, "cpu", "float32", seed)
        self.cache = PagedCache(shape, 200, BLOCK, self.decoder.device, self.decoder.dtype)
        self.upload = Uploader(self.decoder.device)
        self.batch = InputBatch(8, 256, BLOCK)
        self.free = np.random.default_rng(seed).permutation(np.arange(1, 200)).tolist()

    def sequence(self, tokens):
        row = self.batch.add(np.asarray(tokens))
        total = -(-len(tokens) // BLOCK)
        self.batch.hold(row, [self.free.pop() for _ in range(total)], total)
        return row

    def step(self, *pieces):
        """Row -> logits of its last token."""
        inputs = self.batch.inputs([Piece(*piece, samples=True) for piece in pieces])
        ints = self.upload.ints
        with torch.inference_mode():
            attention = SdpaAttention(self.cache, inputs, self.upload)
            logits = self.decoder.logits(ints(inputs.tokens), ints(inputs.positions), ints(inputs.sampled), attention)
        return {piece.row: logits[at] for at, piece in enumerate(inputs.sampling)}


def _tokens(count, seed):
    return np.random.default_rng(seed).integers(0, CONFIG["vocab_size"], count)


def _reference(shape, tokens, seed=0):
    """Logits of every position, by attention by the book and no cache at all."""
    decoder = Decoder(shape, "cpu", "float32", seed)

    def attention(_layer, q, k, v):
        group = q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
        scores = torch.einsum("nhd,mhd->hnm", q, k) / q.shape[-1] ** 0.5
        later = torch.ones(len(tokens), len(tokens), dtype=torch.bool).triu(1)
        return torch.einsum("hnm,mhd->nhd", scores.masked_fill(later, -torch.inf).softmax(-1), v)

    ids = torch.as_tensor(tokens)
    with torch.inference_mode():
        return decoder.logits(ids, torch.arange(len(tokens)), torch.arange(len(tokens)), attention)


def _close(one, other):
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_pass_equals_attention_by_the_book(family):
    shape, tokens = _shape(family), _tokens(37, 1)
    server = Server(shape)
    row = server.sequence(tokens)
    _close(server.step((row, 0, 37))[row], _reference(shape, tokens)[-1])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cuts", [(13, 24, 30), (4, 8, 36), (1, 2, 3)])
def test_chunks_and_decodes_through_the_cache_equal_one_pass(family, cuts):
    """Chunks end inside a block, at its edge, or are one token long; then token by token to the end."""
    shape, tokens = _shape(family), _tokens(40, 2)
    expected = _reference(shape, tokens)
    server = Server(shape)
    row = server.sequence(tokens)
    first = 0
    for cut in (*cuts, *range(cuts[-1] + 1, 41)):
        _close(server.step((row, first, cut - first))[row], expected[cut - 1])
        first = cut


@pytest.mark.parametrize("family", FAMILIES)
def test_mixed_batches_equal_every_sequence_alone(family):
    """Decode rows of very different lengths, a prompt, and a later chunk, all in one step."""
    shape = _shape(family)
    texts = [_tokens(count, 10 + i) for i, count in enumerate((120, 3, 40, 41, 22, 50))]
    server = Server(shape)
    rows = [server.sequence(text) for text in texts]
    server.step(*((row, 0, len(text) - 1) for row, text in zip(rows[:4], texts[:4], strict=True)), (rows[5], 0, 21))
    decodes = [(row, len(text) - 1, 1) for row, text in zip(rows[:4], texts[:4], strict=True)]
    logits = server.step(decodes[0], (rows[4], 0, 22), *decodes[1:], (rows[5], 21, 29))
    for row, text in zip(rows, texts, strict=True):
        _close(logits[row], _reference(shape, text)[-1])


def test_rows_that_do_not_sample_skip_the_lm_head():
    shape = _shape("llama")
    server = Server(shape)
    rows = [server.sequence(_tokens(8, i)) for i in range(3)]
    inputs = server.batch.inputs([Piece(row, 0, 8, samples=row == rows[1]) for row in rows])
    ints = server.upload.ints
    attention = SdpaAttention(server.cache, inputs, server.upload)
    with torch.inference_mode():
        logits = server.decoder.logits(ints(inputs.tokens), ints(inputs.positions), ints(inputs.sampled), attention)
    assert logits.shape == (1, CONFIG["vocab_size"])


def test_the_cache_is_written_and_read():
    """Other tokens before make other logits after; overwritten pages too."""
    server = Server(_shape("qwen3"))
    row = server.sequence(_tokens(20, 3))
    server.step((row, 0, 19))
    before = server.step((row, 19, 1))[row]
    _close(server.step((row, 19, 1))[row], before)
    server.cache.values[1].zero_()
    after = server.step((row, 19, 1))[row]
    assert not torch.allclose(before, after, rtol=1e-3, atol=1e-4)


def test_plain_attention_reads_what_was_written():
    """The reference that GPU kernels are tried against."""
    shape = _shape("llama", num_hidden_layers=1)
    cache = PagedCache(shape, 20, BLOCK, torch.device("cpu"), torch.float32)
    batch = InputBatch(2, 32, BLOCK)
    rows = [batch.add(np.zeros(9, dtype=np.int64)) for _ in range(2)]
    for row, blocks in zip(rows, ([3, 9, 1], [4, 2, 8]), strict=True):
        batch.hold(row, blocks, 3)
    inputs = batch.inputs([Piece(rows[0], 8, 1, samples=True), Piece(rows[1], 2, 7, samples=True)])
    upload = Uploader(torch.device("cpu"))
    q = torch.randn(8, shape.num_heads, shape.head_size)
    k, v = torch.randn(2, 8, shape.num_kv_heads, shape.head_size)
    attended = SdpaAttention(cache, inputs, upload)(0, q, k, v)
    _close(attended, plain_attention(cache, inputs, q))


@pytest.mark.parametrize("family", ["llama", "llama3", "qwen2", "qwen3"])
@pytest.mark.filterwarnings("ignore")
def test_logits_are_those_of_transformers(family):
    """Its reference implementation, with the same weights."""
    transformers = pytest.importorskip("transformers")
    config = {**CONFIG, **FAMILIES[family]}
    reference = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**config), attn_implementation="eager"
    ).eval()
    shape = _shape(family)
    server = Server(shape)
    for weight in reference.parameters():
        torch.nn.init.normal_(weight, 0.0 if weight.dim() > 1 else 1.0, 0.1)
    server.decoder.load(reference.state_dict())
    tokens = _tokens(90, 5)
    with torch.inference_mode():
        expected = reference(torch.as_tensor(tokens)[None]).logits[0]
    row = server.sequence(tokens)
    server.step((row, 0, 50))
    torch.testing.assert_close(server.step((row, 50, 40))[row], expected[-1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"model_type": "gpt2"}, "model_type: got 'gpt2', expected one of llama"),
        ({"model_type": "mixtral", "num_local_experts": 8}, "model_type: got 'mixtral'"),
        ({"hidden_size": "big"}, "hidden_size"),
    ],
)
def test_other_models_are_refused_in_one_line(change, told):
    with pytest.raises(InputError, match=told):
        DecoderShape.from_hf_config({**CONFIG, "model_type": "llama", **change})


@pytest.mark.parametrize(("gpus", "heads", "kv_heads", "width", "vocab"), [(2, 3, 1, 32, 51), (1, 6, 2, 64, 101)])
def test_a_shard_is_a_narrower_decoder(gpus, heads, kv_heads, width, vocab):
    shape = DecoderShape.from_hf_config({**CONFIG, "model_type": "llama"}, shard_of=gpus)
    assert (shape.num_heads, shape.num_kv_heads, shape.mlp_width, shape.vocab_size) == (heads, kv_heads, width, vocab)
    assert shape.hidden_size == 48
    assert Decoder(shape, "cpu", "float32").layers[0].down.weight.shape == (48, width)


def test_a_shard_of_a_number_that_does_not_divide_the_heads_is_refused():
    with pytest.raises(InputError, match="tensor_parallel_size"):
        DecoderShape.from_hf_config({**CONFIG, "model_type": "llama"}, shard_of=5)


def test_parameters_are_those_of_the_catalogue():
    """Llama-3.1-8B: 8.03e9 parameters, norms aside."""
    from sim.specs import CATALOG

    shape = DecoderShape.from_hf_config(CATALOG / "models" / "llama-3.1-8b.json", name="llama-3.1-8b")
    assert shape.num_parameters == pytest.approx(8.03e9, rel=1e-3)
