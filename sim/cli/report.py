"""`elpase report DIR`: a finished run as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from sim.output import write_text_atomic


@click.command(short_help="A finished run as one HTML page that works offline.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Default: DIR/report.html.")
def command(folder: Path, output: Path | None) -> None:
    """Write the run in DIR, as `elpase replay TRACE --out DIR` left it, as one HTML page.

    Figures to zoom and to read with the pointer, tables, and how the run was made. The page needs no network and no
    other file.

    Example: elpase report run -o report.html
    """
    # Heavy libraries are loaded only when there is something to write.
    from sim.report.finished import read_finished
    from sim.report.page.page import run_page

    page = run_page(read_finished(folder))
    output = output or folder / "report.html"
    write_text_atomic(output, page)
    click.echo(f"elpase: wrote {output} ({len(page.encode()) / 1000:,.0f} kB)", err=True)
