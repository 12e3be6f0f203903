"""Attention kernels of a GPU over the paged cache.

Not for a CPU. Which of them runs is decided by trial (torch_backends.py), as it depends on what is installed:

    kind      | decode rows                            | chunks
    fa-paged  | one FlashAttention call for all that follows the block tables (FlashAttention 3, if torch finds it)
    triton    | a Triton kernel that follows the block | pages gathered, one variable-length FlashAttention call
              | tables (torch_paged_decode.py)         |
    flash     | pages gathered, one FlashAttention call| as above

The one idea: tensors that a CUDA graph replays are made once and filled anew, so a kernel that reads all of a step from
tensors (`Tables`) can be captured; one that gathers pages cannot, as what it gathers has another size in every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from calibrate.harness.inputs import StepInputs
    from calibrate.harness.torch_attention import PagedCache, Uploader


@dataclass(frozen=True, slots=True)
class Tables:
    """A step's rows on the device: slots (T,), block tables (S, blocks), lengths (S,) with the step's own tokens,
    query starts (S + 1,); and the greatest query and context, which kernels want as numbers."""

    slots: Any
    tables: Any
    lengths: Any
    query_starts: Any
    longest_query: int
    longest: int

    @classmethod
    def of(cls, inputs: StepInputs, rows: slice, upload: Uploader) -> Tables:
        """Of some of a step's sequences; the slots are all of the step's."""
        starts, counts = inputs.starts[rows], inputs.counts[rows]
        return cls(
            slots=upload.ints(inputs.slots),
            tables=upload.ints(inputs.tables[rows], torch.int32),
            lengths=upload.ints(starts + counts, torch.int32),
            query_starts=upload.ints(np.concatenate(([0], np.cumsum(counts))), torch.int32),
            longest_query=int(counts.max()),
            longest=int((starts + counts).max()),
        )


class FlashPaged:
    """FlashAttention that follows block tables: `torch.nn.attention.varlen` with FlashAttention 3 underneath."""

    def __init__(self, cache: PagedCache, rows: Tables) -> None:
        self._cache = cache
        self._rows = rows

    def __call__(self, layer: int, q: Any, k: Any, v: Any) -> Any:
        """See `torch_model.Attention`."""
        from torch.nn.attention.varlen import varlen_attn

        rows = self._rows
        self._cache.write(layer, rows.slots, k, v)
        keys, values = self._cache.pages(layer)
        return varlen_attn(
            q,
            keys,
            values,
            rows.query_starts,
            None,
            rows.longest_query,
            rows.longest,
            window_size=(-1, 0),
            enable_gqa=True,
            seqused_k=rows.lengths,
            block_table=rows.tables,
        )


class TritonDecode:
    """Decode rows by the Triton kernel."""

    def __init__(self, cache: PagedCache, rows: Tables, splits: int) -> None:
        self._cache = cache
        self._rows = rows
        self._splits = splits

    def __call__(self, layer: int, q: Any, k: Any, v: Any) -> Any:
        """See `torch_model.Attention`; for steps without chunks."""
        self._cache.write(layer, self._rows.slots, k, v)
        return self.attend(layer, q)

    def attend(self, layer: int, q: Any) -> Any:
        """Attention alone, of the first rows of a step whose K and V are in the cache."""
        from calibrate.harness.torch_paged_decode import paged_decode

        keys, values = self._cache.pages(layer)
        return paged_decode(q, keys, values, self._rows.tables, self._rows.lengths, self._splits)


class FlashGathered:
    """Variable-length FlashAttention over pages copied into a row."""

    def __init__(self, cache: PagedCache, rows: Tables, blocks: Any, key_starts: Any) -> None:
        self._cache = cache
        self._rows = rows
        self._blocks = blocks
        self._key_starts = key_starts

    @classmethod
    def of(cls, cache: PagedCache, inputs: StepInputs, rows: slice, upload: Uploader) -> FlashGathered:
        """For some of a step's sequences."""
        counts = -(-(inputs.starts[rows] + inputs.counts[rows]) // cache.block_size)
        listed = [table[:count] for table, count in zip(inputs.tables[rows], counts, strict=True)]
        starts = np.concatenate(([0], np.cumsum(counts))) * cache.block_size
        blocks = upload.ints(np.concatenate(listed))
        return cls(cache, Tables.of(inputs, rows, upload), blocks, upload.ints(starts, torch.int32))

    def attend(self, layer: int, q: Any) -> Any:
        """Attention alone, of sequences whose K and V are in the cache."""
        rows = self._rows
        keys, values = self._cache.gather(layer, self._blocks)
        # The public varlen_attn changed its arguments from release to release; the operator below did not.
        return torch.ops.aten._flash_attention_forward(
            q,
            keys,
            values,
            rows.query_starts,
            self._key_starts,
            rows.longest_query,
            rows.longest,
            0.0,
            True,
            False,
            seqused_k=rows.lengths,
        )[0]


class SplitAttention:
    """Decode rows by one kernel, chunks by another."""

    def __init__(self, cache: PagedCache, slots: Any, num_decodes: int, decode: Any, prefill: Any) -> None:
        self._cache = cache
        self._slots = slots
        self._num_decodes = num_decodes
        self._decode = decode
        self._prefill = prefill

    def __call__(self, layer: int, q: Any, k: Any, v: Any) -> Any:
        """See `torch_model.Attention`."""
        self._cache.write(layer, self._slots, k, v)
        n = self._num_decodes
        if self._prefill is None:
            return self._decode.attend(layer, q)
        if self._decode is None:
            return self._prefill.attend(layer, q)
        return torch.cat((self._decode.attend(layer, q[:n]), self._prefill.attend(layer, q[n:])))
