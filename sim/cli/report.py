"""`elpase report DIR`: a finished run as one HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sim.cli.paths import PathType
from sim.errors import InputError
from sim.output import write_text_atomic

if TYPE_CHECKING:
    from pathlib import Path

    from sim.report.finished import FinishedRun


@click.command(short_help="A finished run as one HTML page that works offline.")
@click.argument("folder", metavar="DIR", type=PathType())
@click.option("--profile", metavar="NAME|FILE", help="The run's latency profile, where it is a file of your own.")
@click.option("-o", "--output", type=PathType(dir_okay=False), help="Default: DIR/report.html.")
def command(folder: Path, profile: str | None, output: Path | None) -> None:
    """Write the run in DIR, as `elpase replay TRACE --out DIR` left it, as one HTML page.

    Why it is as slow as it is (elpase explain), figures to zoom and to read with the pointer, tables, and how the run
    was made. The page needs no network and no other file.

    Example: elpase report run -o report.html
    """
    # Heavy libraries are loaded only when there is something to write.
    from sim.report.finished import read_finished, require_whole_result
    from sim.report.page.page import run_page

    run = read_finished(folder)
    require_whole_result(run)
    page = run_page(run, _why(run, profile))
    output = output or folder / "report.html"
    write_text_atomic(output, page)
    click.echo(f"elpase: wrote {output} ({len(page.encode()) / 1000:,.0f} kB)", err=True)


def _why(run: FinishedRun, profile: str | None) -> str:
    """What explains the run; one that was cut short, say, has a page without it."""
    from sim.latency.profile import Profile
    from sim.report.explain import explain
    from sim.report.page.why import not_explained, why_section

    priced = None if profile is None else Profile.load(profile)
    try:
        return why_section(explain(run.frames, priced))
    except InputError as error:
        return not_explained(str(error).removeprefix("this run: "))
