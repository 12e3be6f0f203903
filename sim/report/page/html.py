"""Small pieces of HTML. The one idea: text goes in by one door, which escapes it; everything here returns markup."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def text(value: object) -> str:
    """Any value as text that cannot become markup."""
    return escape(str(value))


def prose(words: str) -> str:
    """Text whose numbers stay on one line with their units."""
    return text(re.sub(r"(?<=\d) (?=%|ms\b|s\b|min\b|h\b)", "\u00a0", words))


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]], *, wordy: Sequence[int] = ()) -> str:
    """A table with a caption, column heads and row heads (the first cell); columns `wordy` hold sentences."""
    heads = "".join(f'<th scope="col"{_text_class(i, wordy)}>{text(cell)}</th>' for i, cell in enumerate(head))
    body = "".join(f"<tr>{_row(row, wordy)}</tr>" for row in rows)
    return (
        # Focusable: what is wider than a phone is scrolled by keyboard too.
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}"><table>'
        f"<caption>{text(caption)}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(row: Sequence[object], wordy: Sequence[int]) -> str:
    first, *others = row
    cells = "".join(f"<td{_text_class(i, wordy)}>{text(cell)}</td>" for i, cell in enumerate(others, 1))
    return f'<th scope="row">{text(first)}</th>{cells}'


def _text_class(column: int, wordy: Sequence[int]) -> str:
    return ' class="text"' if column in wordy else ""


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Names and values."""
    rows = "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in pairs)
    return f'<dl class="facts">{rows}</dl>'


def section(name: str, title: str, *parts: str) -> str:
    """A part of the page that can be linked to."""
    heading = f'<h2 id="{name}-title">{text(title)}</h2>'
    return f'<section id="{name}" aria-labelledby="{name}-title">{heading}{"".join(parts)}</section>'


def paragraph(words: str, kind: str = "") -> str:
    """Of text."""
    return f'<p class="{kind}">{prose(words)}</p>' if kind else f"<p>{prose(words)}</p>"


def plot(name: str, title: str, alt: str, keys: Iterable[tuple[str, str]] = (), kind: str = "panel") -> str:
    """Room for a figure that page.js draws: a title, what its colours mean, and in words what it shows."""
    told = "".join(f'<span class="key" style="--of:var(--{color})">{text(word)}</span>' for word, color in keys)
    return (
        f'<figure class="{kind}" id="{kind}-{name}"><figcaption><b>{prose(title)}</b>{told}<span class="reading">'
        f'</span></figcaption><div class="plot" role="img" tabindex="0" aria-label="{text(alt)}"></div></figure>'
    )
