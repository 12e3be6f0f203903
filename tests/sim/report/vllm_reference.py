"""What vLLM's own `vllm bench serve` saves and prints for given client records: the origin of golden/bench_serve.json.

Runs under an interpreter that has vLLM, never under ours:
    VLLM_PYTHON tests/sim/report/vllm_reference.py < cases.json > bench_serve.json
(its own output serves as cases.json again: the records in the golden file are made up, on a grid of 1/1024 s.)
Reads {"cases": {name: {"argv": [...], "start_s": ..., "duration_s": ..., "outputs": [...]}}}, where an output has
the fields of vLLM's RequestFuncOutput and `arrival_s`. The benchmark itself runs unchanged; only the clock, the
server and the tokenizer are stood in for, so that each request ends as the record says. Writes the cases with
`result` (the saved JSON) and `table` (what it prints last).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import io
import json
import pathlib
import sys
import tempfile


def run_case(serve, output_type, case: dict) -> dict:
    clock = {"now_s": 0.0}
    outputs = case["outputs"]

    async def get_request(*_args, **_kwargs):
        for i, output in enumerate(outputs):
            clock["now_s"] = output["arrival_s"]
            yield samples[i], 0.0

    async def answer(request_func_input, session, pbar=None):
        clock["now_s"] = case["duration_s"]
        fields = {k: v for k, v in outputs[int(request_func_input.request_id)].items() if k != "arrival_s"}
        return output_type(**fields)

    async def no_metrics(*_args, **_kwargs):
        return None

    class Clock:
        @staticmethod
        def perf_counter() -> float:
            return clock["now_s"]

    samples = [
        serve.SampleRequest(prompt="x", prompt_len=o["prompt_len"], expected_output_len=1, request_id=str(i))
        for i, o in enumerate(outputs)
    ]
    serve.time = Clock
    serve.get_request = get_request
    serve.get_samples = lambda *_args, **_kwargs: samples
    serve.get_tokenizer = lambda *_args, **_kwargs: object()
    serve.fetch_spec_decode_metrics = serve.fetch_diffusion_metrics = no_metrics
    serve.save_to_pytorch_benchmark_format = lambda *_args, **_kwargs: None
    serve.ASYNC_REQUEST_FUNCS["vllm"] = answer
    parser = argparse.ArgumentParser()
    serve.add_cli_args(parser)
    common = ["--backend", "vllm", "--model", "toy", "--dataset-name", "custom", "--ready-check-timeout-sec", "0",
              "--disable-tqdm", "--save-result", "--save-detailed", "--result-filename", "result.json",
              "--num-prompts", str(len(outputs))]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as printed:
        args = parser.parse_args([*common, "--result-dir", folder, *case["argv"]])
        asyncio.run(serve.main_async(args))
        result = json.loads((pathlib.Path(folder) / "result.json").read_text())
    table = printed.getvalue()
    return {**case, "result": result, "table": table[table.index("============ Serving") :]}


def main() -> None:
    serve = importlib.import_module("vllm.benchmarks.serve")
    output_type = importlib.import_module("vllm.benchmarks.lib.endpoint_request_func").RequestFuncOutput
    version = importlib.import_module("vllm").__version__
    cases = json.load(sys.stdin)["cases"]
    answers = {name: run_case(serve, output_type, case) for name, case in cases.items()}
    json.dump(
        {"vllm": version, "made_by": "tests/sim/report/vllm_reference.py", "cases": answers}, sys.stdout, indent=1
    )
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
