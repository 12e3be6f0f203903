"""Paged decode attention in Triton: one token per sequence reads its K and V where they lie, page by page.

Not for chunks. The one idea: torch's own kernels want K and V in a row, so without FlashAttention 3 every decode would
first copy its whole context; this kernel follows the block table instead, which is what servers do.

A program takes one sequence, one KV head (with all query heads that share it) and one split of the context; the splits
are put together afterwards by their log-sum-exp. Source of the split: Flash-Decoding (Dao et al., 2023).
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl

_TILE_TOKENS = 64
_LEAST_DOT = 16
"""Rows that a tensor-core product has at least."""
_PROGRAMS_PER_SM = 4
_MOST_SPLITS = 64


@triton.jit  # type: ignore[untyped-decorator]
def _split_kernel(
    q: Any, k: Any, v: Any, tables: Any, lengths: Any, partial: Any, lse: Any,
    scale: Any, table_stride: Any, page_stride: Any, token_stride: Any, head_stride: Any,
    kv_heads: tl.constexpr, group: tl.constexpr, rows: tl.constexpr, size: tl.constexpr,
    page: tl.constexpr, tile: tl.constexpr, splits: tl.constexpr,
) -> None:  # fmt: skip
    sequence, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + sequence)
    share = tl.cdiv(tl.cdiv(length, splits), tile) * tile
    first = split * share
    last = tl.minimum(first + share, length)
    row = tl.arange(0, rows)
    column = tl.arange(0, size)
    heads = kv_heads * group
    query = (sequence * heads + head * group + row) * size
    asked = tl.load(q + query[:, None] + column[None, :], mask=row[:, None] < group, other=0.0)
    best = tl.full([rows], float("-inf"), tl.float32)
    total = tl.zeros([rows], tl.float32)
    out = tl.zeros([rows, size], tl.float32)
    for start in range(first, last, tile):
        token = start + tl.arange(0, tile)
        there = token < last
        block = tl.load(tables + sequence * table_stride + token // page, mask=there, other=0).to(tl.int64)
        at = block * page_stride + (token % page) * token_stride + head * head_stride
        keys = tl.load(k + at[:, None] + column[None, :], mask=there[:, None], other=0.0)
        scores = tl.dot(asked, tl.trans(keys)) * scale
        scores = tl.where(there[None, :], scores, float("-inf"))
        higher = tl.maximum(best, tl.max(scores, 1))
        weights = tl.exp(scores - higher[:, None])
        shrink = tl.exp(best - higher)
        values = tl.load(v + at[:, None] + column[None, :], mask=there[:, None], other=0.0)
        out = out * shrink[:, None] + tl.dot(weights.to(values.dtype), values)
        total = total * shrink + tl.sum(weights, 1)
        best = higher
    place = ((sequence * heads + head * group + row) * splits + split).to(tl.int64)
    kept = row < group
    safe = tl.where(total > 0, total, 1.0)
    tl.store(partial + place[:, None] * size + column[None, :], out / safe[:, None], mask=kept[:, None])
    tl.store(lse + place, tl.where(total > 0, best + tl.log(safe), float("-inf")), mask=kept)


def num_splits(rows: int, kv_heads: int, multiprocessors: int) -> int:
    """Splits of the context that keep the GPU busy: a power of two."""
    wanted = max(1, _PROGRAMS_PER_SM * multiprocessors // (rows * kv_heads))
    return int(min(_MOST_SPLITS, 2 ** math.floor(math.log2(wanted))))


def paged_decode(q: Any, k: Any, v: Any, tables: Any, lengths: Any, splits: int) -> Any:
    """Attention of one query token per sequence.

    q (B, heads, size); k, v (blocks, block size, KV heads, size), contiguous; tables (B, blocks), int32; lengths (B,),
    int32, the context with the token itself. Returns (B, heads, size). `size` is a power of two.
    """
    rows, heads, size = q.shape
    _, page, kv_heads, _ = k.shape
    group = heads // kv_heads
    partial = torch.empty(rows, heads, splits, size, dtype=torch.float32, device=q.device)
    lse = torch.empty(rows, heads, splits, dtype=torch.float32, device=q.device)
    _split_kernel[(rows, kv_heads, splits)](
        q.contiguous(), k, v, tables, lengths, partial, lse,
        1.0 / math.sqrt(size), tables.stride(0), k.stride(0), k.stride(1), k.stride(2),
        kv_heads=kv_heads, group=group, rows=max(_LEAST_DOT, triton.next_power_of_2(group)), size=size,
        page=page, tile=_TILE_TOKENS, splits=splits, num_warps=4,
    )  # fmt: skip
    if splits == 1:
        return partial.squeeze(2).to(q.dtype)
    share = torch.softmax(lse, dim=-1)
    return (partial * share.unsqueeze(-1)).sum(dim=2).to(q.dtype)
