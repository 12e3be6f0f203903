"""JSON of others: whatever is wrong with it is one line that says where."""

from __future__ import annotations

import pytest

from sim.errors import InputError
from sim.json_file import parse_json, read_json, read_json_object

DEEP = "[" * 100_000
LONG = '{"a": ' + "9" * 5000 + "}"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"a": 1,\n "b": }', ":2: not JSON: Expecting value, expected a list"),
        (b"", ":1: not JSON: Expecting value, expected a list"),
        (b"\x89PNG\xff\xfe\x00", ": not JSON: not text, expected a list"),
        (DEEP.encode(), ": not JSON that can be read: nested too deep, expected a list"),
        (LONG.encode(), ": not JSON that can be read: Exceeds the limit"),
    ],
)
def test_a_file(content: bytes, told: str, tmp_path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(content)
    for read in (read_json, read_json_object):
        with pytest.raises(InputError) as caught:
            read(file, "a list")
        assert str(caught.value).startswith(f"{file}{told}")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", DEEP, LONG])
def test_a_line_of_a_file_is_named(text: str) -> None:
    with pytest.raises(InputError, match=r"^a\.jsonl:7: not JSON"):
        parse_json(text, "a.jsonl", 7)


def test_what_it_says(tmp_path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"a": [1, "é"]}', encoding="utf-8")
    assert read_json(file) == read_json_object(file) == {"a": [1, "é"]}
    file.write_text("[3]")
    assert read_json(file) == [3]
    with pytest.raises(InputError, match=r"got \[3\], expected a JSON object"):
        read_json_object(file)
