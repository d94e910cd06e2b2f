"""Tables and folded trees for notebooks: plain HTML, every text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_CELL = "padding: 1px 8px; text-align: left; vertical-align: top"


def escaped(text: object) -> str:
    """A text as HTML shows it. Python's module comes with all of HTML's entities, and few programs show anything so."""
    from html import escape

    return escape(str(text))


def table(rows: Iterable[Sequence[object]], head: Sequence[object] = ()) -> str:
    """Rows of texts as a table.

    Example:
        >>> table([("lr", 0.1)])
        "<table><tr><td style='...'>lr</td><td style='...'>0.1</td></tr></table>"
    """
    lines = [_row(head, "th")] if head else []
    lines += [_row(row, "td") for row in rows]
    return f"<table>{''.join(lines)}</table>"


def _row(cells: Sequence[object], kind: str) -> str:
    made = [f"<{kind} style='{_CELL}'>{escaped(cell)}</{kind}>" for cell in cells]
    return f"<tr>{''.join(made)}</tr>"


def folded(title: str, inner: Sequence[str], is_open: bool = False, note: str = "") -> str:
    """A title that unfolds what is inside, which is HTML; the title alone where nothing is.

    Example:
        >>> folded("a < b", [])
        '<div><code>a &lt; b</code></div>'
    """
    head = f"<code>{escaped(title)}</code>{f' <small>{escaped(note)}</small>' if note else ''}"
    if not inner:
        return f"<div>{head}</div>"
    body = f"<div style='margin-left: 1.5em'>{''.join(inner)}</div>"
    return f"<details{' open' if is_open else ''}><summary>{head}</summary>{body}</details>"


def count_text(number: int) -> str:
    """A number as people read it.

    Example:
        >>> count_text(999), count_text(1_250_000)
        ('999', '1.25 million')
    """
    for unit, scale in (("billion", 1e9), ("million", 1e6)):
        if number >= scale:
            return f"{number / scale:.3g} {unit}"
    return f"{number:,}"
