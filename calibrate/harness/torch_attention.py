"""The paged KV cache, and attention over it for a step that mixes chunks and decode rows.

Not for which tokens are in the step (inputs.py). The one idea: what the layers share (tables, masks, lengths) is made
once per step; a layer then writes its K and V into the pages and calls torch's best kernels for the two kinds of rows.

Here is what every kernel shares, and `sdpa`: pages gathered, scaled_dot_product_attention once per group of decode rows
of like lengths, and once per chunk. The kernels of a GPU are in torch_flash.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from calibrate.harness.decoder_shape import DecoderShape
    from calibrate.harness.inputs import StepInputs

_PADDING = 1.25
"""Decode rows go together while the longest has at most so many times the blocks of the shortest."""


class PagedCache:
    """K and V of all layers: (layers, blocks * block size, KV heads, head size). Block 0 takes what nobody reads."""

    def __init__(self, shape: DecoderShape, num_blocks: int, block_size: int, device: Any, dtype: Any) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        size = (shape.num_layers, num_blocks * block_size, shape.num_kv_heads, shape.head_size)
        # Random, not zero: a GPU draws less power, and clocks higher, on zeros.
        self.keys = torch.empty(size, device=device, dtype=dtype).normal_()
        self.values = torch.empty(size, device=device, dtype=dtype).normal_()

    def write(self, layer: int, slots: Any, k: Any, v: Any) -> None:
        """Put the step's K and V, (T, KV heads, head size), into their slots (T,)."""
        self.keys[layer].index_copy_(0, slots, k)
        self.values[layer].index_copy_(0, slots, v)

    def pages(self, layer: int) -> tuple[Any, Any]:
        """K and V as (blocks, block size, KV heads, head size)."""
        size = (self.num_blocks, self.block_size, *self.keys.shape[2:])
        return self.keys[layer].view(size), self.values[layer].view(size)

    def gather(self, layer: int, blocks: Any) -> tuple[Any, Any]:
        """K and V of `blocks` (n,), one after the other: (n * block size, KV heads, head size)."""
        k, v = self.pages(layer)
        tail = self.keys.shape[2:]
        return k.index_select(0, blocks).view(-1, *tail), v.index_select(0, blocks).view(-1, *tail)


class Uploader:
    """Copies a step's numpy arrays to the device."""

    def __init__(self, device: Any) -> None:
        self._device = device

    def ints(self, values: NDArray[Any], dtype: Any = torch.int64) -> Any:
        """As a tensor of that type. From pinned memory, so that the copy does not stop the device."""
        host = torch.as_tensor(np.ascontiguousarray(values), dtype=dtype)
        if self._device.type == "cpu":
            return host
        return host.pin_memory().to(self._device, non_blocking=True)


# -- scaled_dot_product_attention ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Group:
    """Decode rows of like lengths."""

    rows: Any
    """(b,) token indices, or None for all of them in order."""
    blocks: Any
    """(b * n,) block ids."""
    size: int
    mask: Any
    """(b, 1, 1, n * block size), 0 or -inf."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    first: int
    count: int
    context: int
    blocks: Any
    mask: Any
    """(count, context + count), or None where plain causal attention will do."""


class SdpaAttention:
    """scaled_dot_product_attention over gathered pages: runs anywhere, FP32 included."""

    def __init__(self, cache: PagedCache, inputs: StepInputs, upload: Uploader) -> None:
        self._cache = cache
        self._slots = upload.ints(inputs.slots)
        self._num_decodes = inputs.num_decodes
        self._groups = [self._group(inputs, rows, upload) for rows in _alike(inputs, cache.block_size)]
        self._chunks = list(self._each_chunk(inputs, upload))

    def __call__(self, layer: int, q: Any, k: Any, v: Any) -> Any:
        """See `torch_model.Attention`."""
        self._cache.write(layer, self._slots, k, v)
        if len(self._groups) == 1 and not self._chunks:
            return self._decode(layer, q, self._groups[0])
        out = torch.empty_like(q)
        for group in self._groups:
            out[group.rows] = self._decode(layer, q[group.rows], group)
        for chunk in self._chunks:
            part = slice(chunk.first, chunk.first + chunk.count)
            out[part] = self._prefill(layer, q[part], k[part], v[part], chunk)
        return out

    def _decode(self, layer: int, q: Any, group: _Group) -> Any:
        rows, heads, size = q.shape
        k, v = self._cache.gather(layer, group.blocks)
        kv_heads = k.shape[1]
        # The query heads that share a KV head stand as if they were several queries: no K or V is copied for them.
        grouped = q.view(rows, kv_heads, heads // kv_heads, size)
        k, v = (x.view(rows, -1, kv_heads, size).transpose(1, 2) for x in (k, v))
        return scaled_dot_product_attention(grouped, k, v, attn_mask=group.mask).reshape(rows, heads, size)

    def _prefill(self, layer: int, q: Any, k: Any, v: Any, chunk: _Chunk) -> Any:
        if chunk.context:
            total = chunk.context + chunk.count
            k, v = (x[:total] for x in self._cache.gather(layer, chunk.blocks))
        repeats = q.shape[1] // k.shape[1]
        q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
        if repeats > 1:
            k, v = (x.repeat_interleave(repeats, dim=1) for x in (k, v))
        causal = chunk.mask is None
        attended = scaled_dot_product_attention(q, k, v, attn_mask=chunk.mask, is_causal=causal)
        return attended.squeeze(0).transpose(0, 1)

    def _group(self, inputs: StepInputs, rows: NDArray[np.int64], upload: Uploader) -> _Group:
        lengths = inputs.starts[rows] + 1
        width = -(-int(lengths.max()) // self._cache.block_size)
        seen = np.arange(width * self._cache.block_size) < lengths[:, None]
        mask = upload.ints(np.where(seen, 0.0, -np.inf), self._cache.keys.dtype)
        blocks = upload.ints(inputs.tables[rows, :width].reshape(-1))
        return _Group(upload.ints(rows), blocks, rows.size, mask[:, None, None, :])

    def _each_chunk(self, inputs: StepInputs, upload: Uploader) -> Iterator[_Chunk]:
        first, dtype, device = inputs.num_decodes, self._cache.keys.dtype, self._cache.keys.device
        for row, (count, context) in enumerate(inputs.chunks, start=inputs.num_decodes):
            mask = blocks = None
            if context:
                blocks = upload.ints(inputs.tables[row, : -(-(context + count) // self._cache.block_size)])
                mask = torch.full((count, context + count), -torch.inf, dtype=dtype, device=device).triu_(context + 1)
            yield _Chunk(first, count, context, blocks, mask)
            first += count


def _alike(inputs: StepInputs, block_size: int) -> list[NDArray[np.int64]]:
    """The decode rows in groups of like lengths: padding to a group's longest then costs little."""
    blocks = -(-(inputs.starts[: inputs.num_decodes] + 1) // block_size)
    order = np.argsort(blocks, kind="stable")
    groups: list[NDArray[np.int64]] = []
    first = 0
    for at in range(1, order.size + 1):
        if at == order.size or blocks[order[at]] > max(_PADDING * blocks[order[first]], blocks[order[first]] + 1):
            groups.append(np.sort(order[first:at]))
            first = at
    return groups
