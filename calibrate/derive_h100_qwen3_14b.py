"""Derives the first profile, h100-qwen3-14b, from a folder of measurements that is not part of the project.

    python -m calibrate.derive_h100_qwen3_14b DATA_FOLDER

The one idea: only the steps of the 2-rps runs and kernel tables are fitted; runs at other rates are left for
`elpase validate`. Only coefficients and residuals go into the profile, no row of the data.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calibrate.client_steps import read_client_steps
from calibrate.fit import fit
from calibrate.op_tables import OpTables
from calibrate.samples import Samples
from sim.cli.paths import PathType
from sim.latency.domain import Domain
from sim.latency.profile import PROFILES, ClientTerms, Profile
from sim.specs import gpu_spec, model_spec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from calibrate.fit import Fit

NAME = "h100-qwen3-14b"
STEPS = Path("h100_qwen3_14b_vllm023", "steps_2rps.csv.gz")
KERNELS = Path("op_tables", "h100_sxm")

NUM_GPU_BLOCKS = 18_038
"""As the source states it; vLLM counts the null block in, so requests can hold 18,037."""

UNEXPLAINED_TTFT_S = 0.020
"""The source puts what no step explains of a TTFT at low load (HTTP, tokenizer, async scheduling) at 20 to 25 ms. The
lower end, as a lone prompt's step, which is what TTFT at low load shows, is priced 2 ms high (sustained clocks)."""

SERVER: dict[str, object] = {
    "max_num_batched_tokens": 8192,
    "max_num_seqs": 1024,
    "max_model_len": 40960,
    "block_size": 16,
    "num_gpu_blocks_override": NUM_GPU_BLOCKS,
    "enable_chunked_prefill": True,
    "enable_prefix_caching": True,
    "async_scheduling": True,
}

SOURCES = {
    "served steps": "inference-sim/residency-vllm: gaps between streamed tokens in two 600 s runs at 2 requests/s, one"
    " H100 80GB, Qwen3-14B BF16, vLLM 0.23.0, TP 1, prompts of about 986 tokens, 128 output tokens",
    "kernels": "NVIDIA AIConfigurator (Apache-2.0): vLLM 0.24.0 kernel tables of an H100 SXM (GEMM, context and"
    " generation attention), composed for Qwen3-14B",
    "server": "budget, block size, blocks, chunked prefill and prefix caching as the source states them; max_num_seqs"
    " (more than the 256 in flight) and max_model_len are vLLM's defaults for this GPU and model",
}

NOTES = {
    "clocks": "arithmetic is priced at sustained clocks: of prompts that follow another within 4 steps. A lone prompt"
    " between decodes finds a cooler GPU; clock_ratios says how much faster it is, and kernels timed one by one are",
    "overheads": "step_s is what a served step takes beyond its kernels; token_s includes norms, activations and rotary"
    " embedding",
    "host": "async scheduling hid the host's time behind the GPU: host_step_s and host_row_s are 0 and cannot be told",
    "async scheduling": "a request that arrives while step k runs joins step k + 2, which the simulated scheduler does"
    " by itself. client.request_s is what is left, the 20 ms that the source finds no step for less one mean step; it"
    " was not fitted to any TTFT",
    "decode_context": "stated up to the KV cache's size, 10 % beyond the largest sample: the term is a straight line",
    "later chunks": "chunks after a context were not timed; they are priced by their query-key pairs",
}


@click.command()
@click.argument("data", type=PathType(exists=True, file_okay=False))
@click.option("--out", type=PathType(dir_okay=False), default=PROFILES / f"{NAME}.json")
def main(data: Path, out: Path) -> None:
    """Fit the profile to the measurements in DATA and write it to --out."""
    served, averages = read_client_steps(data / STEPS)
    kernels = OpTables(data / KERNELS).samples(model_spec("qwen3-14b"))
    samples = Samples.concat([served, kernels])
    result = fit(samples)
    make_profile(result, samples, averages).save(out)
    for regime, size in result.residuals.items():
        click.echo(f"{regime:24} {size}")
    click.echo(f"clock ratios {result.clock_ratios}; wrote {out}")


def make_profile(result: Fit, samples: Samples, averages: dict[str, float]) -> Profile:
    """The profile of a fit, with everything that is known about the server and the sources."""
    gpu, model = gpu_spec("h100"), model_spec("qwen3-14b")
    return Profile(
        name=NAME,
        model=model.name,
        gpu=gpu.name,
        tensor_parallel_size=1,
        dtype="bfloat16",
        engine="vllm",
        engine_version="0.23.0",
        law=result.law,
        domain=_domain(samples),
        client=ClientTerms(request_s=round(UNEXPLAINED_TTFT_S - averages["mean_cycle_s"], 4)),
        server=SERVER,
        kv_bytes_per_token=model.kv_bytes_per_token(),
        device_memory_bytes=gpu.memory_bytes,
        residuals=result.residuals,
        provenance=_provenance(result, averages),
    )


def _domain(samples: Samples) -> Domain:
    def up_to(column: NDArray[Any]) -> tuple[float, float]:
        return 0.0, float(column.max())

    return Domain(
        num_tokens=up_to(samples.num_tokens),
        num_seqs=up_to(samples.num_seqs),
        decode_context=(0.0, float(NUM_GPU_BLOCKS * 16)),
        chunk_pairs=up_to(samples.chunk_pairs),
    )


def _provenance(result: Fit, averages: dict[str, float]) -> dict[str, Any]:
    gpu, model = gpu_spec("h100"), model_spec("qwen3-14b")
    law = result.law
    read_bytes = model.weight_bytes - 2 * model.vocab_size * model.hidden_size
    linear_flop = 2 * (model.num_parameters - 2 * model.vocab_size * model.hidden_size)
    return {
        "command": "python -m calibrate.derive_h100_qwen3_14b DATA_FOLDER",
        "date": datetime.now(tz=UTC).date().isoformat(),
        "sources": SOURCES,
        "notes": NOTES,
        "averages": {name: round(value, 6) for name, value in averages.items()},
        "clock_ratios": {state: round(ratio, 4) for state, ratio in result.clock_ratios.items()},
        "standard_errors": {name: float(f"{value:.2g}") for name, value in result.standard_errors.items()},
        "implied": {
            "weights read, share of peak bandwidth": round(
                read_bytes / law.weight_read_s / gpu.bandwidth_bytes_per_s, 3
            ),
            "GEMMs, share of peak FLOP/s": round(linear_flop / law.token_s / gpu.dense_bf16_flop_per_s, 3),
            "decode KV read, share of peak bandwidth": round(
                model.kv_bytes_per_token() / law.context_s / gpu.bandwidth_bytes_per_s, 3
            ),
        },
    }


if __name__ == "__main__":
    main()
