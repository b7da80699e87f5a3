"""Tables and lists as HTML that reads well on the light and the dark page of a notebook."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from html import escape


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Container[int] = ()) -> str:
    """Return rows under their columns; columns whose number is in ``right`` align to the right."""
    head = "".join(_cell("th", text, number in right) for number, text in enumerate(columns))
    body = "".join(
        "<tr>" + "".join(_cell("td", text, n in right) for n, text in enumerate(row)) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def section(heading: str, lines: Iterable[str]) -> str:
    """Return lines as a list under a heading; nothing where there are none."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<p><b>{escape(heading)}</b></p><ul>{items}</ul>" if items else ""


def paragraph(text: str, *, strong: bool = False) -> str:
    """Return one line of text."""
    shown = escape(text)
    return f"<p><b>{shown}</b></p>" if strong else f"<p>{shown}</p>"


def _cell(tag: str, text: str, right: bool) -> str:
    side = "right" if right else "left"
    return f'<{tag} style="text-align: {side}">{escape(text)}</{tag}>'
