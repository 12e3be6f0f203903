"""Composes whole steps of a decoder from single kernels, as a server under load would run them.

Not for reading tables (op_tables.py, op_files.py) and not for host time. The one idea: a step is the sum of its
kernels, where tables of kernels lack three things that a server has, each stated here as one number with its source:
sustained clocks, elementwise kernels between the GEMMs, and decodes that share an attention call with prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from calibrate.grid import GridStep, grid
from calibrate.op_tables import dense_width
from calibrate.samples import FULL_GRAPH, NO_GRAPH, PIECEWISE_GRAPH, Samples, TimedStep
from sim.specs import ParallelSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from calibrate.grid import GridLimits
    from calibrate.op_files import FileSteps
    from calibrate.op_tables import OpTables
    from calibrate.samples import Origin
    from sim.latency.graphs import Graphs
    from sim.specs import GpuSpec, ModelSpec

SUSTAINED_CLOCKS = 1.15
"""How much longer arithmetic takes in a loaded server than in a loop of one kernel. Fitted on an H100: the served steps
of profile h100-qwen3-14b against the same kernel tables (its provenance, clock_ratios: kernels)."""

MIXED_ATTENTION = 1.95
"""How much longer a decode row's attention takes beside a prompt, where one kernel serves both. Same source
(context_s + mixed_context_s over context_s); 1.7 to 2 in the mixed batches of the `vllm019` files."""

MIXED_TILE_MS = 2.5e-5
"""On top of that, per decode row, layer and KV head, whatever the context: a kernel made for prompts gives the row a
tile of its own. Mixed batches of the `vllm019` files: 0.48 us per row on an RTX PRO 6000 and 0.95 us on an RTX 4090,
whose FlashAttention 2 makes a tile for each of 32 heads, so 2.8 and 3.8 us of one of their 188 and 128 SMs per tile.
FlashAttention 3 packs the heads that share a KV head into one tile; an H100 or H200 has 132 SMs. Scaled from the mean
of the two, not measured."""

ELEMENTWISE_LAYER_MS = 0.009
"""Launching two norms, rotary embedding, cache write and activation of one layer. Measured in the `vllm019` files: 8 to
10 us on an RTX 4090 and an RTX PRO 6000, whose memory differs by 1.8 times."""

ELEMENTWISE_L2 = 0.67
"""Share of the bytes of those kernels that reaches main memory, the rest being in the L2 cache. Same source: 0.67 of
bytes over bandwidth, on both GPUs."""

SAMPLER_MS = 0.025
SAMPLER_PASSES = 12
"""Launching the sampler (same source), and how often it reads or writes a row of FP32 logits (softmax, noise, argmax:
vllm/v1/sample, random sampling)."""

_BOUND = 4
"""Exponent of the soft choice between a kernel bound by arithmetic and one bound by memory."""


@dataclass(frozen=True, slots=True)
class TableSteps:
    """Steps of one model on `tp` GPUs, composed from AIConfigurator's tables."""

    tables: OpTables
    gpu: GpuSpec
    model: ModelSpec
    tp: int = 1
    clocks: float = SUSTAINED_CLOCKS

    def seconds(self, step: GridStep, padded_tokens: int) -> float:
        """A step of prompt chunks and decode rows, whose GEMMs compute `padded_tokens`."""
        rows = step.num_seqs
        ms = self.linear_ms(padded_tokens, rows) + self.attention_ms(step.chunks, step.decodes)
        ms += self.elementwise_ms(padded_tokens) + self.exchange_ms(padded_tokens, rows) + self.sampler_ms(rows)
        return ms / 1e3

    def known_terms(self) -> dict[str, float]:
        """Coefficients that need no fit: what a step of one token launches beside its GEMMs, what every further token
        adds there, and a decode row's tile beside a prompt."""
        launches = self.elementwise_ms(1) + self.exchange_ms(1, 1) + self.sampler_ms(1) + self.attention_ms((), (1,))
        most = int(self.tables.gemm.lengths[-1])
        per_token = sum(part(most) - part(1) for part in (self.elementwise_ms, self._reduces_ms)) / (most - 1)
        tiles = self.model.num_layers * MIXED_TILE_MS * self._kv_heads
        return {"step_s": launches / 1e3, "elementwise_s": per_token / 1e3, "eager_row_s": tiles / 1e3}

    @property
    def _kv_heads(self) -> int:
        return self.model.kv_heads_per_gpu(ParallelSpec(self.tp))

    def linear_ms(self, tokens: int, rows: int) -> float:
        """GEMMs at sustained clocks."""
        per_layer, head = self.tables.matrices(self.model, self.tp)
        layers = self._experts_ms(tokens) + sum(self._gemm_ms(tokens, n, k) for n, k in per_layer)
        return self.model.num_layers * layers + self._gemm_ms(rows, *head)

    def _gemm_ms(self, m: float, n: float, k: float) -> float:
        return self.tables.gemm.ms(m, n, k) * self._under_load(2 * m * n * k, 2 * (n * k + m * k + m * n))

    def _experts_ms(self, tokens: int) -> float:
        """One layer's routed experts: each token is computed by its own, each that is needed is read once."""
        experts = self.model.experts
        if experts is None:
            return 0.0
        weights = 3 * self.model.hidden_size * experts.moe_intermediate_size / self.tp
        read_bytes = experts.read(tokens) * weights * experts.bits_per_weight / 8
        kernels = self.tables.experts(self.model, self.tp)
        return kernels.ms(tokens) * self._under_load(2 * tokens * experts.num_experts_per_tok * weights, read_bytes)

    def _under_load(self, flop: float, moved_bytes: float) -> float:
        """How much longer a kernel takes in a server: all of `clocks` if arithmetic bounds it, nothing if memory."""
        compute_s = flop / self.gpu.dense_bf16_flop_per_s
        memory_s = moved_bytes / self.gpu.bandwidth_bytes_per_s
        bound = compute_s**_BOUND / (compute_s**_BOUND + memory_s**_BOUND)
        return 1 + (self.clocks - 1) * bound

    def attention_ms(self, chunks: Sequence[tuple[int, int]], decodes: Sequence[int]) -> float:
        """All layers' attention: every chunk's pairs and every row's context, in one call."""
        windowed = self.model.num_window_layers
        ms = (self.model.num_layers - windowed) * self._layer_attention_ms(chunks, decodes, 0)
        return ms + (windowed * self._layer_attention_ms(chunks, decodes, self.model.window) if windowed else 0.0)

    def _layer_attention_ms(self, chunks: Sequence[tuple[int, int]], decodes: Sequence[int], window: int) -> float:
        ms = 0.0
        if chunks:
            prompt = self.tables.prompt_attention(self.model, self.tp, window)
            over_a_launch = sum(prompt.ms(n, before) - prompt.floor for n, before in chunks)
            ms = prompt.floor + self.clocks * over_a_launch
        if decodes:
            rows, count = self.tables.decode_attention(self.model, self.tp, window), len(decodes)
            alone, launched = rows.ms(count, sum(decodes)), rows.ms(count, count)
            if chunks:
                ms += MIXED_ATTENTION * (alone - launched) + launched - rows.ms(1, 1)
                ms += MIXED_TILE_MS * self._kv_heads * count
            else:
                ms = alone
        return ms

    def elementwise_ms(self, tokens: int) -> float:
        """Norms, rotary embedding, cache write and activation (that of routed experts is in their kernels): launches,
        or bytes, whichever takes longer."""
        model = self.model
        heads, kv_heads = model.num_heads // self.tp, self._kv_heads
        elements = 8 * model.hidden_size  # two norms: residual and input, read and written
        elements += (2 * heads + 6 * kv_heads) * model.head_size  # rotary on Q and K; K and V into the cache
        elements += 3 * dense_width(model) // self.tp  # gate and up in, their product out
        per_layer = ELEMENTWISE_L2 * 2 * elements * tokens / self.gpu.bandwidth_bytes_per_s * 1e3
        return model.num_layers * max(ELEMENTWISE_LAYER_MS, per_layer)

    def exchange_ms(self, tokens: int, rows: int) -> float:
        """Between GPUs: two all-reduces per layer and one of the embedding; the logits, as an all-reduce of a half."""
        return self._reduces_ms(tokens) + self.tables.allreduce_ms(self.tp, rows * self.model.vocab_size)

    def _reduces_ms(self, tokens: int) -> float:
        message = tokens * self.model.hidden_size * 2
        return (2 * self.model.num_layers + 1) * self.tables.allreduce_ms(self.tp, message)

    def sampler_ms(self, rows: int) -> float:
        """Softmax and sampling on FP32 logits."""
        return SAMPLER_MS + SAMPLER_PASSES * 4 * rows * self.model.vocab_size / self.gpu.bandwidth_bytes_per_s * 1e3


def table_samples(steps: TableSteps, limits: GridLimits, graphs: Graphs, count: int, origin: Origin) -> Samples:
    """`count` different steps of a server with such limits, as kernel tables price them."""
    return Samples.of_steps([_priced(steps, step, graphs, "op tables") for step in grid(limits, count)], origin)


def file_samples(steps: FileSteps, limits: GridLimits, graphs: Graphs, count: int, origin: Origin) -> Samples:
    """`count` steps of decodes or of prompts alone, interpolated, and the mixed batches just as they were timed."""
    pure = (step for step in grid(limits, 2 * count) if not (step.chunks and step.decodes))
    priced = [_priced(steps, step, graphs, "op files") for step in pure]
    return Samples.of_steps([*priced, *_mixed(steps, limits)], origin)


def _priced(steps: TableSteps | FileSteps, step: GridStep, graphs: Graphs, source: str) -> TimedStep:
    padded = graphs.padded(step.num_tokens, step.chunk_tokens)
    return TimedStep.of(
        step.chunks,
        step.decodes,
        steps.seconds(step, padded),
        padded_tokens=padded,
        graph=_graph(step.num_tokens, step.chunk_tokens, graphs),
        source=source,
    )


def _mixed(steps: FileSteps, limits: GridLimits) -> Iterator[TimedStep]:
    # Without padding: what was timed computed just its tokens.
    for chunk, before, rows, context, seconds in steps.mixed(limits.kv_tokens, limits.max_tokens):
        yield TimedStep.of([(chunk, before)], [context] * rows, seconds, graph=NO_GRAPH, source="op files")


def _graph(tokens: int, chunk_tokens: int, graphs: Graphs) -> str:
    if not graphs.sizes or tokens > graphs.sizes[-1]:
        return NO_GRAPH
    return FULL_GRAPH if not chunk_tokens else PIECEWISE_GRAPH if graphs.mixed else NO_GRAPH
