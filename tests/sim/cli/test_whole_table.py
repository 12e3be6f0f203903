"""Tables in narrow terminals: every figure is there, whole."""

from __future__ import annotations

import pytest
from rich.table import Table

from sim.cli.whole_table import show

ROWS = [("Output throughput (tok/s)", "1,234,567.89", "1,234,568.90", "+0.1 %"), ("Mean E2EL (ms)", "1.0", "2.0", "-")]


@pytest.mark.parametrize("columns", [10, 40, 80, 200])
def test_a_row_is_a_line_and_no_number_is_cut(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    table = Table(title="open_2rps.csv: 1,212 requests", title_justify="left")
    for name in ("", "real", "simulated", "error"):
        table.add_column(name, justify="right")
    for row in ROWS:
        table.add_row(*row)
    show(table)
    lines = capsys.readouterr().out.splitlines()
    for row in ROWS:
        assert [line for line in lines if all(cell in line for cell in row)], lines
