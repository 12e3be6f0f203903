"""CUDA graphs of pure decodes: a whole pass, from token ids to sampled tokens, replayed at a captured batch size.

Not for steps with chunks, which run eagerly here. The one idea: rows beyond the step's own are padding: they read and
write block 0, which belongs to nobody. Batch sizes are vLLM's; each is captured when it is first used.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from calibrate.harness.torch_flash import Tables

if TYPE_CHECKING:
    from calibrate.harness.inputs import StepInputs
    from calibrate.harness.torch_attention import PagedCache, Uploader
    from calibrate.harness.torch_backends import Backend
    from calibrate.harness.torch_model import Decoder


class _Captured(NamedTuple):
    graph: Any
    sampled: Any
    """(size,) tokens, overwritten by each replay."""


class DecodeGraphs:
    """Graphs of one decoder, sharing their memory and their inputs."""

    def __init__(self, decoder: Decoder, cache: PagedCache, backend: Backend, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes if self._usable(decoder, backend) else ()
        self._decoder = decoder
        self._cache = cache
        self._kernel = backend.kernel
        self._captured: dict[int, _Captured] = {}
        self._pool: Any = None
        if self.sizes:
            self._make_inputs(self.sizes[-1], decoder.device)

    @staticmethod
    def _usable(decoder: Decoder, backend: Backend) -> bool:
        return bool(decoder.device.type == "cuda" and backend.kernel.capturable)

    def size_for(self, rows: int) -> int | None:
        """The smallest captured size that holds so many rows; None where none does."""
        at = bisect_left(self.sizes, rows)
        return self.sizes[at] if rows and at < len(self.sizes) else None

    def replay(self, inputs: StepInputs, upload: Uploader) -> Any:
        """Run a pure decode as a graph: its sampled tokens; None where no graph serves the step."""
        rows = inputs.num_decodes
        size = None if rows < inputs.counts.size else self.size_for(rows)
        if size is None:
            return None
        self._fill(inputs, rows, size, upload)
        if size not in self._captured:
            self._captured[size] = self._capture(size)
        captured = self._captured[size]
        captured.graph.replay()
        return captured.sampled[upload.ints(inputs.sampled)]

    def _make_inputs(self, most: int, device: Any) -> None:
        width = -(-self._decoder.shape.max_model_len // self._cache.block_size)
        self._tokens, self._positions, self._slots = (
            torch.zeros(most, dtype=torch.int64, device=device) for _ in range(3)
        )
        self._tables = torch.zeros(most, width, dtype=torch.int32, device=device)
        self._lengths = torch.ones(most, dtype=torch.int32, device=device)
        self._query_starts = torch.arange(most + 1, dtype=torch.int32, device=device)

    def _fill(self, inputs: StepInputs, rows: int, size: int, upload: Uploader) -> None:
        """Put a step into the first rows, and padding into those up to `size`."""
        self._tokens[:rows].copy_(upload.ints(inputs.tokens))
        self._positions[:rows].copy_(upload.ints(inputs.positions))
        self._slots[:rows].copy_(upload.ints(inputs.slots))
        self._tables[:rows, : inputs.tables.shape[1]].copy_(upload.ints(inputs.tables, torch.int32))
        self._lengths[:rows].copy_(upload.ints(inputs.starts + 1, torch.int32))
        if rows < size:
            self._positions[rows:size].zero_()
            self._slots[rows:size].zero_()
            self._tables[rows:size, 0].zero_()
            self._lengths[rows:size].fill_(1)

    def _capture(self, size: int) -> _Captured:
        """Run once on the side, as torch asks, so that libraries set themselves up; then capture."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._pass(size)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            sampled = self._pass(size)
        self._pool = graph.pool()
        return _Captured(graph, sampled)

    def _pass(self, size: int) -> Any:
        rows = Tables(
            slots=self._slots[:size],
            tables=self._tables[:size],
            lengths=self._lengths[:size],
            query_starts=self._query_starts[: size + 1],
            longest_query=1,
            longest=self._decoder.shape.max_model_len,
        )
        attention = self._kernel.static(self._cache, rows)
        every = self._query_starts[:size].long()
        return self._decoder.logits(self._tokens[:size], self._positions[:size], every, attention).argmax(dim=-1)
