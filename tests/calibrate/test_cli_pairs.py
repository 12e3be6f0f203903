from __future__ import annotations

from typing import Any

import click
import pytest

from calibrate.cli_pairs import flag_values, pair, server_option


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("max-num-seqs=64", 64),
        ("--max_num_seqs=64", 64),
        ("max_num_seqs=0.5", 0.5),
        ("max_num_seqs=true", True),
        ("max_num_seqs=True", "True"),
        ("max_num_seqs=a=b", "a=b"),
        ('max_num_seqs=""', ""),
        ("max_num_seqs=[1, 2]", [1, 2]),
    ],
)
def test_a_value_is_json_where_it_is_that_and_else_text(text: str, value: object) -> None:
    found = flag_values((text,), "NAME=VALUE")
    assert found == {"max_num_seqs": value}
    assert type(found["max_num_seqs"]) is type(value)


@pytest.mark.parametrize("text", ["", "=", "max_num_seqs", "max_num_seqs=", "=64"])
def test_both_sides_are_needed(text: str) -> None:
    with pytest.raises(click.BadParameter, match=f"got '{text}', expected ABOUT=TEXT"):
        pair(text, "ABOUT=TEXT")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("max_num_seq=3", "did you mean 'max_num_seqs'?"),
        ("max_num_seqs=[3]", "max_num_seqs: got [3], expected a flag's value: a number, a text, true or false"),
        ("compilation_config={", "compilation_config: got '{', expected a JSON object"),
        ("max_num_seqs=" + "[" * 100_000, "expected a whole number"),
        ("max_num_seqs=many", "max_num_seqs: got 'many', expected a whole number"),
    ],
)
def test_a_server_has_flags_that_elpase_knows(said: str, told: str) -> None:
    @click.command()
    @server_option("Of the server.")
    def command(server: dict[str, Any]) -> None:
        raise AssertionError(server)

    with pytest.raises(click.BadParameter) as caught:
        command.main(["--server", said], standalone_mode=False)
    assert told in str(caught.value)
