"""Chooses the attention kernel by trial: the best one that runs here and is right.

Not for the kernels. The one idea: what a torch build really has is found out by computing a tiny mixed step and
comparing it with plain attention; whatever fails is noted with its reason, and the next best takes its place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from calibrate.harness.inputs import InputBatch, Piece
from calibrate.harness.torch_attention import PagedCache, SdpaAttention, Uploader
from calibrate.harness.torch_flash import FlashGathered, FlashPaged, SplitAttention, Tables, TritonDecode
from sim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from calibrate.harness.decoder_shape import DecoderShape
    from calibrate.harness.inputs import StepInputs
    from calibrate.harness.torch_model import Attention

_TOLERANCE = 3e-2
"""Largest difference from plain attention, of values around 1 in BF16."""
_TRIAL_ROWS = ((1, 0), (1, 40), (1, 300), (20, 0), (33, 70))
"""(tokens, context) of the trial's sequences."""
_BLOCK_SIZE = 16


class Kernel(Protocol):
    """One way to attend."""

    capturable: bool
    """A pure decode can be captured in a CUDA graph."""

    def prepare(self, cache: PagedCache, inputs: StepInputs, upload: Uploader) -> Attention:
        """What a step's layers share."""

    def static(self, cache: PagedCache, rows: Tables) -> Attention:
        """For a decode whose tensors are filled anew before each replay."""


class Sdpa:
    """`sdpa`: runs anywhere."""

    capturable = False

    def prepare(self, cache: PagedCache, inputs: StepInputs, upload: Uploader) -> Attention:
        """See `Kernel`."""
        return SdpaAttention(cache, inputs, upload)

    def static(self, cache: PagedCache, rows: Tables) -> Attention:
        """Never asked for."""
        raise NotImplementedError


class Flash(Sdpa):
    """`flash`."""

    def prepare(self, cache: PagedCache, inputs: StepInputs, upload: Uploader) -> Attention:
        """See `Kernel`."""
        n, last = inputs.num_decodes, inputs.counts.size
        decode = self._decode(cache, inputs, slice(0, n), upload) if n else None
        prefill = FlashGathered.of(cache, inputs, slice(n, last), upload) if n < last else None
        return SplitAttention(cache, upload.ints(inputs.slots), n, decode, prefill)

    def _decode(self, cache: PagedCache, inputs: StepInputs, rows: slice, upload: Uploader) -> Any:
        return FlashGathered.of(cache, inputs, rows, upload)


class Triton(Flash):
    """`triton`."""

    capturable = True

    def __init__(self) -> None:
        from calibrate.harness.torch_paged_decode import num_splits

        self._num_splits = num_splits

    def static(self, cache: PagedCache, rows: Tables) -> Attention:
        """See `Kernel`."""
        return TritonDecode(cache, rows, self._splits(cache, rows.lengths.shape[0]))

    def _decode(self, cache: PagedCache, inputs: StepInputs, rows: slice, upload: Uploader) -> Any:
        count = rows.stop - rows.start
        return TritonDecode(cache, Tables.of(inputs, rows, upload), self._splits(cache, count))

    def _splits(self, cache: PagedCache, rows: int) -> int:
        device = cache.keys.device
        sms = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
        return self._num_splits(rows, cache.keys.shape[2], sms)


class FaPaged:
    """`fa-paged`."""

    capturable = True

    def __init__(self) -> None:
        from torch.nn.attention import activate_flash_attention_impl

        activate_flash_attention_impl("FA3")

    def prepare(self, cache: PagedCache, inputs: StepInputs, upload: Uploader) -> Attention:
        """See `Kernel`."""
        return FlashPaged(cache, Tables.of(inputs, slice(0, inputs.counts.size), upload))

    def static(self, cache: PagedCache, rows: Tables) -> Attention:
        """See `Kernel`."""
        return FlashPaged(cache, rows)


KERNELS: dict[str, Callable[[], Kernel]] = {"fa-paged": FaPaged, "triton": Triton, "flash": Flash, "sdpa": Sdpa}
"""Best first."""


@dataclass(frozen=True, slots=True)
class Backend:
    """The kernel that was chosen, and why."""

    name: str
    kernel: Kernel
    block_size: int
    rejected: dict[str, str]
    """Better kernels -> why they cannot be used here."""


def choose(wanted: str, device: Any, dtype: Any, shape: DecoderShape, block_size: int | None) -> Backend:
    """The best kernel that works, or the one that is `wanted`. Raises InputError where that one does not work."""
    names: Sequence[str] = list(KERNELS) if device.type == "cuda" else ["sdpa"]
    names = names if wanted == "auto" else [wanted]
    rejected: dict[str, str] = {}
    for name in names:
        try:
            kernel = KERNELS[name]()
            error = _trial(kernel, device, dtype, shape, block_size or _BLOCK_SIZE)
        except Exception as failure:  # whatever a build lacks, it tells in its own way
            rejected[name] = f"{type(failure).__name__}: {_first_sentence(str(failure))}"
            continue
        if error <= _TOLERANCE:
            return Backend(name, kernel, block_size or _BLOCK_SIZE, rejected)
        rejected[name] = f"differs from plain attention by {error:.2g}"
    told = "; ".join(f"{name}: {reason}" for name, reason in rejected.items())
    raise InputError(field="--attention", value=wanted, expected=f"a kernel that works here ({told})")


def _first_sentence(text: str) -> str:
    """torch goes on with a page of what else there is."""
    first, _, _ = text.strip().partition("\n")
    return first.partition(". ")[0]


def _trial(kernel: Kernel, device: Any, dtype: Any, shape: DecoderShape, block_size: int) -> float:
    """Largest difference of a mixed step and of a pure decode from plain attention, in FP32."""
    small = replace(shape, num_layers=1)
    cache = PagedCache(small, 1 + sum(-(-(n + c) // block_size) for n, c in _TRIAL_ROWS), block_size, device, dtype)
    upload = Uploader(device)
    decodes = [row for row in _TRIAL_ROWS if row[0] == 1]
    return max(_difference(kernel, cache, rows, small, upload) for rows in (_TRIAL_ROWS, decodes))


def _difference(
    kernel: Kernel, cache: PagedCache, rows: Sequence[tuple[int, int]], shape: DecoderShape, upload: Uploader
) -> float:
    inputs = _trial_inputs(rows, cache.block_size)
    on: dict[str, Any] = {"device": cache.keys.device, "dtype": cache.keys.dtype}
    total, size = inputs.num_tokens, shape.head_size
    q = torch.randn(total, shape.num_heads, size, **on)
    k, v = (torch.randn(total, shape.num_kv_heads, size, **on) for _ in range(2))
    attended = kernel.prepare(cache, inputs, upload)(0, q, k, v)
    return float((attended.float() - plain_attention(cache, inputs, q)).abs().max())


def _trial_inputs(rows: Sequence[tuple[int, int]], block_size: int) -> StepInputs:
    batch = InputBatch(len(rows), max(n + c for n, c in rows), block_size)
    pieces, next_block = [], 1
    for count, context in rows:
        total = -(-(count + context) // block_size)
        row = batch.add(np.zeros(count + context, dtype=np.int64))
        batch.hold(row, range(next_block + total - 1, next_block - 1, -1), total)
        next_block += total
        pieces.append(Piece(row, context, count, samples=True))
    return batch.inputs(pieces)


def plain_attention(cache: PagedCache, inputs: StepInputs, q: Any, layer: int = 0) -> Any:
    """Attention by the book, in FP32, one sequence after the other, from what the cache holds."""
    out = []
    first = 0
    for row, (count, start) in enumerate(zip(inputs.counts.tolist(), inputs.starts.tolist(), strict=True)):
        table = torch.as_tensor(inputs.tables[row], device=q.device)
        k, v = (x[: start + count].float() for x in cache.gather(layer, table))
        group = q.shape[1] // k.shape[1]
        asked = q[first : first + count].float()
        k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
        scores = torch.einsum("nhd,mhd->hnm", asked, k) / q.shape[-1] ** 0.5
        later = (
            torch.arange(start + count, device=q.device) > torch.arange(start, start + count, device=q.device)[:, None]
        )
        out.append(torch.einsum("hnm,mhd->nhd", scores.masked_fill(later, -torch.inf).softmax(dim=-1), v))
        first += count
    return torch.cat(out)
