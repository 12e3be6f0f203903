"""vllm bench serve's workload flags: names, defaults, refusals, and which go with which TRACE."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from sim.cli.flags import EngineCommand
from sim.cli.workload_flags import GROUPS, workload_options
from sim.errors import InputError
from sim.workload import GOES_WITH, open_from
from workloads import Trace, builtin

LONGEST = 40960


@click.command(cls=EngineCommand)
@workload_options
def verb(**kwargs: object) -> Trace:
    return open_from(kwargs, LONGEST)


def opened(*args: object) -> Trace:
    trace: Trace = verb.main([str(arg) for arg in args], standalone_mode=False)
    return trace


def refused(*args: object) -> str:
    with pytest.raises((InputError, click.ClickException)) as error:
        opened(*args)
    told = error.value
    return told.format_message() if isinstance(told, click.ClickException) else str(told)


class TestDatasets:
    def test_random_with_vllms_defaults(self) -> None:
        requests = list(opened("random"))
        assert len(requests) == 1000
        assert {(r.arrival_s, r.prompt_tokens, r.output_tokens, r.content) for r in requests} == {(0, 1024, 128, None)}

    def test_random_with_all_its_flags(self) -> None:
        flags = ("--random-input-len", 100, "--random-output-len", 50, "--random-prefix-len", 30)
        requests = list(opened("random", *flags, "--random-range-ratio", 0.25, "--num-prompts", 2000))
        # vLLM: integers from floor(n (1 - ratio)) to ceil(n (1 + ratio)), after the prefix.
        assert {r.prompt_tokens for r in requests} == set(range(30 + 75, 30 + 126))
        assert {r.output_tokens for r in requests} == set(range(37, 64))
        assert len({r.content[0] for r in requests}) == 1
        assert len({r.content[1][0] for r in requests}) == 2000

    def test_range_ratios_of_their_own(self) -> None:
        flags = ("--random-input-len", 100, "--random-output-len", 50, "--num-prompts", 500)
        requests = list(opened("random", *flags, "--random-range-ratio", '{"input": 0.0, "output": 0.5}'))
        assert {r.prompt_tokens for r in requests} == {100}
        assert 25 <= min(r.output_tokens for r in requests) < 35

    def test_prefix_repetition_with_vllms_defaults(self) -> None:
        requests = list(opened("prefix_repetition", "--num-prompts", 105))
        assert len(requests) == 100  # 105 // 10 for each of 10 prefixes
        assert {(r.prompt_tokens, r.output_tokens) for r in requests} == {(512, 128)}
        prefixes = [r.content[0] for r in requests]
        assert {prefixes.count(prefix) for prefix in prefixes} == {10}
        assert prefixes != sorted(prefixes)  # shuffled
        assert {n for _, n in prefixes} == {256}
        assert len({r.content[1][0] for r in requests}) == 100

    def test_sessions(self) -> None:
        requests = list(opened("sessions", "--num-prompts", 3, "--sessions-num-turns", 4, "--sessions-prefix-len", 10))
        assert len(requests) == 12
        assert [r.prompt_tokens for r in requests[:4]] == [10 + 256 + k * (256 + 128) for k in range(4)]
        assert [r.after is None for r in requests] == [True, False, False, False] * 3
        assert len({r.content[0] for r in requests}) == 1

    def test_general_lengths_stand_above_those_of_the_data_set(self) -> None:
        """As in vLLM, whose --input-len sets --random-input-len whatever that says."""
        flags = ("--input-len", 7, "--output-len", 3, "--random-input-len", 9, "--num-prompts", 2)
        assert {(r.prompt_tokens, r.output_tokens) for r in opened("random", *flags)} == {(7, 3)}
        assert {r.output_tokens for r in opened("prefix_repetition", "--output-len", 3)} == {3}

    @pytest.mark.parametrize(
        ("args", "told"),
        [
            (["random", "--random-input-len", 0], "--random-input-len: got 0, expected an integer from 1"),
            (["random", "--random-range-ratio", 1], "--random-range-ratio: got 1.0, expected a number in [0, 1)"),
            (["random", "--random-range-ratio", '{"input": 0.1}'], "--random-range-ratio: expected a number in [0, 1)"),
            (["random", "--random-range-ratio", "wide"], "'wide' is neither a number nor"),
            (["random", "--random-input-len", 1, "--random-range-ratio", 0.5], "--random-input-len: got 1,"),
            (["prefix_repetition", "--num-prompts", 9], "--num-prompts: got 9, expected at least one prompt"),
            (["prefix_repetition", "--prefix-repetition-num-prefixes", 0], "num-prefixes: got 0, expected an integer"),
            (["sessions", "--sessions-think-s", "nan"], "--sessions-think-s: got nan, expected seconds from 0"),
            (["sessions", "--sessions-range-ratio", -0.1], "--sessions-range-ratio: got -0.1"),
            (["random", "--num-prompts", 0], "'--num-prompts': 0 is not in the range"),
            (["random", "--num-prompts", 10**12], "'--num-prompts': 1000000000000 is not in the range"),
        ],
    )  # fmt: skip
    def test_what_vllm_refuses_and_what_would_not_fit(self, args, told) -> None:
        assert told in refused(*args)


class TestArrivals:
    def test_a_rate_is_kept_exactly_as_in_vllm(self) -> None:
        """It stretches the gaps so that request n comes at n / rate."""
        times_s = [r.arrival_s for r in opened("random", "--num-prompts", 40, "--request-rate", 8)]
        assert times_s[-1] == pytest.approx(5.0)
        assert times_s == sorted(times_s)
        assert len(set(times_s)) == 40

    def test_a_rate_keeps_a_built_in_workloads_bursts(self) -> None:
        own = [r.arrival_s for r in builtin("azure-code", num_requests=2000)]
        fast = [r.arrival_s for r in opened("azure-code", "--num-prompts", 2000, "--request-rate", 2.5664 * 4)]
        assert fast == pytest.approx([at / 4 for at in own], abs=1e-5)

    def test_a_shape_replaces_a_built_in_workloads_bursts(self) -> None:
        flags = ("--num-prompts", 4, "--request-rate", 2, "--burstiness", "inf")
        requests = list(opened("azure-code", *flags))
        assert [r.arrival_s for r in requests] == [0.5, 1.0, 1.5, 2.0]
        own = list(builtin("azure-code", num_requests=4))
        assert [(r.prompt_tokens, r.output_tokens) for r in requests] == [
            (r.prompt_tokens, r.output_tokens) for r in own
        ]
        assert {r.arrival_s for r in opened("azure-code", "--num-prompts", 4, "--request-rate", "inf")} == {0.0}

    @pytest.mark.parametrize(
        ("flags", "told"),
        [
            (["--request-rate", 0], "--request-rate: got 0.0, expected requests per second > 0, or inf"),
            (["--request-rate", "nan"], "--request-rate: got nan"),
            (["--request-rate", "fast"], "'fast' is not a valid float"),
            (["--request-rate", 3, "--burstiness", -1], "--burstiness: got -1.0, expected a number > 0, or inf"),
            (["--burstiness", 2], "--burstiness needs --request-rate or a ramp"),
            (["--ramp-up-strategy", "linear"], "--ramp-up-start-rps: expected requests per second > 0"),
            (["--ramp-up-strategy", "cubic"], "'cubic' is not one of 'linear', 'exponential'"),
            (["--ramp-up-start-rps", 2, "--ramp-up-end-rps", 3], "--ramp-up-strategy: expected linear or exponential"),
            (
                ["--ramp-up-strategy", "linear", "--ramp-up-start-rps", 3, "--ramp-up-end-rps", 2],
                "--ramp-up-start-rps: got 3.0, expected at most --ramp-up-end-rps 2.0",
            ),
            (
                ["--ramp-up-strategy", "linear", "--ramp-up-start-rps", 2, "--ramp-up-end-rps", 3, "--request-rate", 2],
                "--request-rate contradicts --ramp-up-strategy",
            ),
        ],
    )
    def test_refusals(self, flags, told) -> None:
        assert told in refused("random", "--num-prompts", 5, *flags)

    def test_times_beyond_all_measure_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"arrival_s: got .*, expected at most 1000000000 seconds"):
            list(opened("random", "--num-prompts", 3, "--request-rate", 1e-300))


VALUES = {"format": "csv", "random_range_ratio": "0.5", "ramp_up_strategy": "linear"}


@pytest.mark.parametrize("trace", ["random", "prefix_repetition", "sessions", "azure-conv", "some.csv"])
def test_a_flag_that_does_not_go_with_trace_is_an_error(trace: str) -> None:
    """Each flag, for each kind: no flag is ever without effect."""
    kind = {"azure-conv": "a built-in workload", "some.csv": "a file"}.get(trace, trace)
    flags = [(flag, group) for group in GROUPS for flag in group.flags if kind not in GOES_WITH[flag.name]]
    assert len(flags) >= 9
    for flag, _ in flags:
        dashed = f"--{flag.name.replace('_', '-')}"
        assert refused(trace, dashed, VALUES.get(flag.name, "5")).startswith(f"{dashed} goes with ")


def test_a_file_says_what_it_has_instead() -> None:
    assert refused("t.csv", "--num-prompts", 5).endswith("; t.csv is a file: see --limit")
    assert refused("t.csv", "--request-rate", 5).endswith("; t.csv is a file, with times of its own: see --rate-scale")


def test_vllms_way_to_name_a_data_set_says_ours() -> None:
    assert refused("--dataset-name", "random") == "--dataset-name: say it as TRACE, as in `elpase replay random`"


def test_a_missing_file_names_what_there_is() -> None:
    with pytest.raises(
        ValueError, match=r"radnom: file: got .* azure-code, azure-conv, random, prefix_repetition, sess"
    ):
        opened("radnom")


def test_a_file_of_a_workloads_name_is_read_as_a_path(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "random").write_text("arrival_s,prompt_tokens,output_tokens\n0,3,2\n")
    monkeypatch.chdir(tmp_path)
    assert len(list(opened("./random"))) == 1
    assert len(list(opened("random"))) == 1000


@pytest.mark.parametrize(
    ("args", "at_most"),
    [
        (["random"], 1000),
        (["random", "--limit", 7], 7),
        (["prefix_repetition", "--num-prompts", 57], 50),
        (["sessions", "--num-prompts", 3], 15),
        (["azure-conv"], 19366),
    ],
)
def test_how_many_requests_there_may_be_is_known_before(args, at_most) -> None:
    trace = opened(*args)
    assert trace.at_most == at_most
    if at_most < 1000:
        assert len(list(trace)) == at_most


def test_a_files_lines_are_the_most_that_it_may_have(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "0,3,2\n" * 7)
    assert len(list(opened(path))) == 7 <= opened(path).at_most <= 9
    assert opened(path, "--limit", 5).at_most == 5
    path.write_text('{"start_times": [0, 1], "input_lens": [3, 3], "output_lens": [2, 2]}')
    assert opened(path).at_most is None
    assert opened(path, "--limit", 5).at_most == 5


def test_help_shows_each_data_sets_flags_with_vllms_defaults(capsys) -> None:
    with pytest.raises(click.exceptions.Exit):
        verb.main(["--help"], standalone_mode=False)
        raise click.exceptions.Exit
    shown = " ".join(capsys.readouterr().out.split())
    for default in (
        "--random-input-len INTEGER Prompt tokens. Default: 1024.",
        "--random-output-len INTEGER Output tokens. Default: 128.",
        "--prefix-repetition-num-prefixes INTEGER Prefixes, each sent equally often. Default: 10.",
    ):
        assert default in shown
    assert "dataset" not in shown
