"""Kernels of a layer's experts, read from AIConfigurator's table of fused mixture-of-experts calls.

Not for the router nor for experts that every token passes through: those are GEMMs (op_tables.py). The one idea: how
long a call takes depends on how its tokens are spread over the experts, so a table is read for one such spread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibrate.table_file import read_table, timed
from sim.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from calibrate.samples import Column
    from sim.specs import ModelSpec

FILE = "moe_perf.parquet"

SPREAD = "power_law_1.2"
"""`distribution` of the rows that are read: a few experts get most tokens, as in a trained model. AIConfigurator's own
choice for such models. Evenly spread (`balanced`), the experts of gpt-oss take 0.6 to 1.6 times as long."""

_DTYPES = {"": "bfloat16", "mxfp4": "w4a16_mxfp4", "gpt-oss-mxfp4": "w4a16_mxfp4"}
"""How weights are stored -> `moe_dtype`. Others were timed too, but the other GEMMs are read in BF16 only."""


@dataclass(frozen=True, slots=True)
class ExpertKernels:
    """Milliseconds of one layer's experts on one GPU: both GEMMs, activation and the sum of the chosen ones."""

    tokens: Column
    times: Column
    kernel: str
    """`kernel_source`: which of vLLM's."""
    dtype: str

    @classmethod
    def read(cls, folder: Path, model: ModelSpec, tp: int) -> ExpertKernels:
        """Of a model's experts, each split between `tp` GPUs. Raises InputError for what was not timed."""
        file, experts = folder / FILE, model.experts
        assert experts is not None
        if experts.num_layers != model.num_layers:
            expected = f"experts in all {model.num_layers} layers, to compose steps from kernels"
            raise InputError(field="layers with experts", value=experts.num_layers, expected=expected)
        if experts.quantization not in _DTYPES:
            expected = "mxfp4, or weights without quantization, to compose steps from kernels"
            raise InputError(field="quant_method", value=experts.quantization, expected=expected)
        wanted = {
            "hidden_size": model.hidden_size,
            "inter_size": experts.moe_intermediate_size,
            "num_experts": experts.num_experts,
            "topk": experts.num_experts_per_tok,
            "moe_dtype": _DTYPES[experts.quantization],
            "moe_ep_size": 1,
            "moe_tp_size": tp,
            "distribution": SPREAD,
        }
        rows = timed(read_table(file, "num_tokens", "latency", "kernel_source", *wanted), file, wanted)
        kernel = str(rows["kernel_source"].iloc[0])
        by_tokens = rows[rows["kernel_source"] == kernel].groupby("num_tokens")["latency"].median()
        return cls(by_tokens.index.to_numpy(float), by_tokens.to_numpy(float), kernel, _DTYPES[experts.quantization])

    def ms(self, tokens: float) -> float:
        """For so many tokens; beyond the most that were timed in proportion."""
        more = max(1.0, tokens / float(self.tokens[-1]))
        return more * float(np.exp(np.interp(np.log(tokens / more), np.log(self.tokens), np.log(self.times))))
