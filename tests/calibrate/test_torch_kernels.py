"""A GPU's attention kernels, tried without one: the Triton kernel interpreted, torch's own replaced by the book.

What is tested of FlashAttention is what is ours: which pages, lengths and offsets it is handed.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")  # read when torch imports it: its kernels then need no GPU
torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from calibrate.harness import torch_backends  # noqa: E402  # torch first: without it there is nothing here
from calibrate.harness.decoder_shape import DecoderShape  # noqa: E402
from calibrate.harness.torch_attention import PagedCache, Uploader  # noqa: E402
from calibrate.harness.torch_backends import KERNELS, Flash, choose  # noqa: E402
from calibrate.harness.torch_flash import FlashPaged, Tables  # noqa: E402
from sim.errors import InputError  # noqa: E402

CPU = torch.device("cpu")
SHAPE = DecoderShape.from_hf_config(
    {
        "model_type": "llama",
        "hidden_size": 64,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_hidden_layers": 2,
        "intermediate_size": 64,
        "vocab_size": 50,
        "max_position_embeddings": 512,
    },
    name="tiny",
)


def _book(q, k, v, q_starts, k_starts, _max_q, _max_k, dropout, causal, _mask, *, seqused_k):
    """Variable-length attention as FlashAttention defines it: bottom-right causal, `seqused_k` keys each."""
    assert (dropout, causal) == (0.0, True)
    out = []
    for i, used in enumerate(seqused_k.tolist()):
        asked = q[q_starts[i] : q_starts[i + 1]]
        keys, values = (x[k_starts[i] : k_starts[i] + used] for x in (k, v))
        out.append(_attention(asked, keys, values))
    return torch.cat(out), None


def _attention(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    scores = torch.einsum("nhd,mhd->hnm", q, k) / q.shape[-1] ** 0.5
    n, m = len(q), len(k)
    later = torch.arange(m) > torch.arange(m - n, m)[:, None]
    return torch.einsum("hnm,mhd->nhd", scores.masked_fill(later, -torch.inf).softmax(-1), v)


def _paged_book(q, k, v, q_starts, k_starts, _max_q, _max_k, *, window_size, enable_gqa, seqused_k, block_table):
    assert (k_starts, window_size, enable_gqa) == (None, (-1, 0), True)
    out = []
    for i, used in enumerate(seqused_k.tolist()):
        keys, values = (x[block_table[i].long()].flatten(0, 1)[:used] for x in (k, v))
        out.append(_attention(q[q_starts[i] : q_starts[i + 1]], keys, values))
    return torch.cat(out)


@pytest.fixture
def flash_by_the_book(monkeypatch):
    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", _book, raising=False)


def _trial(kernel):
    return torch_backends._trial(kernel, CPU, torch.float32, SHAPE, 16)


def test_flash_is_handed_the_right_pages_and_lengths(flash_by_the_book):
    assert _trial(Flash()) < 1e-5


def test_paged_flash_is_handed_the_right_tables(monkeypatch):
    from torch.nn.attention import varlen

    monkeypatch.setattr(varlen, "varlen_attn", _paged_book)

    class Paged:
        def prepare(self, cache, inputs, upload):
            return FlashPaged(cache, Tables.of(inputs, slice(0, inputs.counts.size), upload))

    assert _trial(Paged()) < 1e-5


def test_a_kernel_that_is_wrong_is_not_chosen(monkeypatch, flash_by_the_book):
    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", lambda q, *_a, **_k: (torch.zeros_like(q),))
    with pytest.raises(InputError, match="differs from plain attention"):
        choose("flash", CPU, torch.float32, SHAPE, 16)


def test_a_kernel_that_does_not_run_is_named_with_its_reason():
    with pytest.raises(InputError, match="--attention: got 'fa-paged'"):
        choose("fa-paged", CPU, torch.float32, SHAPE, 16)


def test_of_a_reason_the_first_sentence_is_told(monkeypatch):
    monkeypatch.setitem(KERNELS, "flash", lambda: _raise(NotImplementedError("No CPU kernel. It could be\nthat ...")))
    with pytest.raises(InputError) as told:
        choose("flash", CPU, torch.float32, SHAPE, 16)
    assert str(told.value).endswith("(flash: NotImplementedError: No CPU kernel)")


def _raise(error):
    raise error


def test_a_cpu_takes_sdpa():
    backend = choose("auto", CPU, torch.float32, SHAPE, None)
    assert (backend.name, backend.block_size, backend.rejected) == ("sdpa", 16, {})


@pytest.fixture
def triton_kernel(monkeypatch):
    pytest.importorskip("triton")
    from calibrate.harness.torch_backends import Triton

    return Triton()


@pytest.mark.filterwarnings("ignore")
def test_triton_s_paged_decode_is_right(triton_kernel, flash_by_the_book):
    assert _trial(triton_kernel) < 1e-5


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("splits", [1, 2, 8, 64])
def test_any_number_of_splits_gives_the_same(triton_kernel, splits):
    """Also where a split has nothing to read."""
    from calibrate.harness.torch_paged_decode import paged_decode

    cache = PagedCache(SHAPE, 40, 16, CPU, torch.float32)
    lengths = [1, 16, 17, 200]
    tables = np.zeros((4, 13), dtype=np.int64)
    used = 1
    for row, length in enumerate(lengths):
        blocks = -(-length // 16)
        tables[row, :blocks] = np.arange(used, used + blocks)[::-1]
        used += blocks
    q = torch.randn(4, SHAPE.num_heads, SHAPE.head_size)
    k, v = cache.pages(1)
    ints = Uploader(CPU).ints
    got = paged_decode(q, k, v, ints(tables, torch.int32), ints(np.array(lengths), torch.int32), splits)
    for row, length in enumerate(lengths):
        keys, values = (x[:length] for x in cache.gather(1, torch.as_tensor(tables[row])))
        torch.testing.assert_close(got[row], _attention(q[row : row + 1], keys, values)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("rows", "splits"), [(1, 32), (8, 8), (64, 1), (512, 1)])
def test_splits_keep_the_gpu_busy(triton_kernel, rows, splits):
    """132 multiprocessors, 8 KV heads: about four programs for each."""
    from calibrate.harness.torch_paged_decode import num_splits

    assert num_splits(rows, 8, 132) == pytest.approx(splits, rel=1.0)
    assert num_splits(rows, 8, 132) * rows * 8 <= max(4 * 132, rows * 8)
