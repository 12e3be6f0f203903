"""Runs steps of a decoder on a device and says how long they took: what grid timings and the closed loop share.

Not for choosing shapes (grid.py) nor for serving (closed_loop.py). The one idea: a step is run in one way only, from
numpy arrays to sampled tokens, so what the grid times is what the closed loop does.
"""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from calibrate.grid import GridStep
from calibrate.harness.inputs import InputBatch, Piece
from calibrate.harness.torch_attention import PagedCache, Uploader
from calibrate.harness.torch_backends import choose
from calibrate.harness.torch_graphs import DecodeGraphs
from calibrate.harness.torch_model import Decoder
from sim.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from calibrate.harness.decoder_shape import DecoderShape
    from calibrate.harness.inputs import StepInputs

_CPU_KV_BYTES = 2 << 30
"""KV cache on a CPU, unless told otherwise."""
_GPU_SHARE = 0.9
"""Of the GPU's memory, for weights and cache together; the rest is for activations."""
_ACTIVATION_ROWS = 6
"""Widest point of a pass: about so many times (hidden + MLP width) elements per token are alive."""


_CPU_IS_FULL = ("not enough memory", "can't allocate memory")
"""In torch's words: it has no exception of its own for a CPU."""


class OutOfMemory(InputError):
    """The device has no room for a step, or for the model and its cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerOptions:
    """How to run. Bytes, tokens."""

    device: str = "cpu"
    dtype: str = "float32"
    block_size: int | None = None
    """None: what the attention kernel likes."""
    attention: str = "auto"
    kv_bytes: int | None = None
    """None: what is left on a GPU, 2 GiB on a CPU."""
    num_blocks: int | None = None
    """Blocks of the cache, in place of `kv_bytes`."""
    max_tokens: int = 16384
    """Largest step that is to fit."""
    graph_sizes: tuple[int, ...] = ()
    """Batch sizes of pure decode that run as CUDA graphs."""
    cold_l2: bool = False
    """Empty the L2 cache before each timed step."""
    threads: int | None = None
    seed: int = 0


class TorchRunner:
    """A decoder, its paged cache and its attention on one device."""

    def __init__(self, shape: DecoderShape, options: RunnerOptions) -> None:
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        self.shape = shape
        self.options = options
        self.device = torch.device(usable_device(options.device))
        self.vocab_size = shape.vocab_size
        with torch.inference_mode(), _memory_errors():
            self.decoder = Decoder(shape, options.device, options.dtype, options.seed)
            self._upload = Uploader(self.device)
            self.backend = choose(options.attention, self.device, self.decoder.dtype, shape, options.block_size)
            self.block_size = self.backend.block_size
            self.cache = PagedCache(shape, self._num_blocks(), self.block_size, self.device, self.decoder.dtype)
            self._graphs = DecodeGraphs(self.decoder, self.cache, self.backend, options.graph_sizes)
        self._rng = np.random.default_rng(options.seed)
        self._flush: Any = None

    @property
    def graph_sizes(self) -> tuple[int, ...]:
        """Batch sizes that run as CUDA graphs; none where the device or the attention kernel cannot."""
        return self._graphs.sizes

    @property
    def threads(self) -> int:
        """CPU threads that torch computes with."""
        return int(torch.get_num_threads())

    @property
    def kv_tokens(self) -> int:
        """Tokens that the cache holds."""
        return (self.cache.num_blocks - 1) * self.block_size

    def run(self, inputs: StepInputs) -> tuple[NDArray[np.int64], float]:
        """Compute a step; the sampled tokens and the device's seconds. See `closed_loop.Forward`."""
        with torch.inference_mode(), _memory_errors():
            return self._on_gpu(inputs) if self.device.type == "cuda" else self._on_cpu(inputs)

    def seconds(self, step: GridStep, repeats: int, limit_s: float) -> list[float]:
        """Time a step: one pass to warm up, then `repeats` more, fewer (but one) once `limit_s` have gone by.

        Raises OutOfMemory, and leaves the device usable.
        """
        inputs = self._inputs(step)
        started_s = time.perf_counter()
        self.run(inputs)
        taken: list[float] = []
        while len(taken) < repeats and (not taken or time.perf_counter() - started_s < limit_s):
            self._empty_l2()
            taken.append(self.run(inputs)[1])
        return taken

    def warm_up(self, max_seqs: int, max_tokens: int) -> None:
        """Run what a server runs once before its first request: the widest steps, and every CUDA graph it will need."""
        longest = min(self.shape.max_model_len, self.kv_tokens // 2)
        tokens = min(max_tokens, longest)
        rows = max(1, min(max_seqs, self.kv_tokens // (2 * self.block_size)))
        for step in (GridStep(((tokens, 0),), ()), GridStep((), (1,) * rows), GridStep(((tokens // 2, 0),), (1,))):
            self.run(self._inputs(step))
        for size in self.graph_sizes:
            if size <= rows:
                self.run(self._inputs(GridStep((), (1,) * size)))

    def padded(self, step: GridStep) -> tuple[int, str]:
        """Tokens that the device computes for a step, and the kind of CUDA graph: "full" or "none"."""
        rows = len(step.decodes)
        size = self._graphs.size_for(rows) if not step.chunks else None
        return (rows + step.chunk_tokens, "none") if size is None else (size, "full")

    def _on_cpu(self, inputs: StepInputs) -> tuple[NDArray[np.int64], float]:
        start_s = time.perf_counter()
        tokens = self._eager(inputs).numpy()
        return tokens, time.perf_counter() - start_s

    def _on_gpu(self, inputs: StepInputs) -> tuple[NDArray[np.int64], float]:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        sampled = self._graphs.replay(inputs, self._upload)
        if sampled is None:
            sampled = self._eager(inputs)
        end.record()
        tokens = sampled.cpu().numpy()
        return tokens, start.elapsed_time(end) * 1e-3

    def _eager(self, inputs: StepInputs) -> Any:
        ints = self._upload.ints
        attention = self.backend.kernel.prepare(self.cache, inputs, self._upload)
        logits = self.decoder.logits(ints(inputs.tokens), ints(inputs.positions), ints(inputs.sampled), attention)
        return logits.argmax(dim=-1)

    def _inputs(self, step: GridStep) -> StepInputs:
        """Arrays of a step whose sequences lie in blocks scattered over the cache, as they do in a server."""
        rows = [(1, context) for context in step.decodes] + list(step.chunks)
        longest = max(count + context for count, context in rows)
        batch = InputBatch(len(rows), longest, self.block_size)
        free = self._rng.permutation(np.arange(1, self.cache.num_blocks))
        pieces, used = [], 0
        for count, context in rows:
            total = -(-(count + context) // self.block_size)
            row = batch.add(self._rng.integers(0, self.vocab_size, count + context))
            batch.hold(row, free[used : used + total].tolist(), total)
            used += total
            pieces.append(Piece(row, context, count, samples=True))
        return batch.inputs(pieces)

    def _empty_l2(self) -> None:
        if not self.options.cold_l2 or self.device.type != "cuda":
            return
        if self._flush is None:
            size = 2 * torch.cuda.get_device_properties(self.device).L2_cache_size
            self._flush = torch.empty(size, dtype=torch.uint8, device=self.device)
        self._flush.zero_()
        torch.cuda.synchronize()

    def _num_blocks(self) -> int:
        if self.options.num_blocks is not None:
            return self.options.num_blocks
        element = self.decoder.dtype.itemsize
        per_block = self.block_size * self.shape.kv_bytes_per_token(element)
        kv_bytes = self.options.kv_bytes
        if kv_bytes is None:
            kv_bytes = self._free_bytes(element) if self.device.type == "cuda" else _CPU_KV_BYTES
        blocks = kv_bytes // per_block
        if blocks < 2:
            raise OutOfMemory(f"no room for a KV cache: {kv_bytes:,} bytes, one block takes {per_block:,}")
        if self.device.type == "cpu" and kv_bytes > machine_memory():
            # A system that overcommits would hand it out, and end the process when it is used.
            raise OutOfMemory(f"no room for a KV cache of {kv_bytes:,} bytes in {machine_memory():,} of memory")
        return int(blocks)

    def _free_bytes(self, element: int) -> int:
        free, total = torch.cuda.mem_get_info(self.device)
        width = self.shape.hidden_size + 2 * self.shape.mlp_width
        activations = _ACTIVATION_ROWS * self.options.max_tokens * width * element
        return int(free - (1 - _GPU_SHARE) * total - activations)


class _memory_errors:  # noqa: N801  # a context manager, named as one
    """Turns torch's out-of-memory errors into ours, and gives the memory back."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, torch.OutOfMemoryError) or (
            isinstance(error, RuntimeError) and any(words in str(error) for words in _CPU_IS_FULL)
        ):
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            raise OutOfMemory("out of memory: try a smaller model, --kv-gib or --max-tokens") from error


def usable_device(name: str) -> str:
    """The device that a user's word means; "auto": a GPU where there is one. Raises InputError."""
    here = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    if name == "auto":
        return "cuda" if here else "cpu"
    if name not in ("cpu", *(["cuda"] if here else []), *here):
        raise InputError(field="--device", value=name, expected=f"one of {', '.join(['cpu', *here])}")
    return name


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What must be noted of the device and the libraries."""

    device: str
    memory_bytes: int
    driver: str
    versions: dict[str, str]


def device_facts(device: str) -> DeviceFacts:
    """Name, memory, driver and versions."""
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    if torch.device(device).type != "cuda":
        return DeviceFacts(_cpu_name(), machine_memory(), platform.release(), versions)
    properties = torch.cuda.get_device_properties(torch.device(device))
    versions["cuda"] = str(torch.version.cuda)
    return DeviceFacts(properties.name, properties.total_memory, _driver(), versions)


def machine_memory() -> int:
    """Bytes of main memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _driver() -> str:
    """The NVIDIA driver's version, as the kernel module tells it; empty where it does not."""
    try:
        first = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError):
        return ""
    return next((word for word in first.split() if word[:1].isdigit() and "." in word), "")


def default_dtype(device: str, stated: str) -> str:
    """The model's own type on a GPU; FP32 on a CPU, which has no fast arithmetic for less."""
    return "float32" if torch.device(device).type == "cpu" else stated
