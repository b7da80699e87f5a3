"""The catalogue as one page: pictures inside, nothing fetched, no script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from headtohead.tools.catalogue.content import Section
from headtohead.tools.catalogue.docstrings import ARXIV
from headtohead.tools.catalogue.markdown import ABOUT, LETTERS, TITLES


def as_html(sections: Sequence[Section]) -> str:
    """Return the whole page."""
    style = files("headtohead.tools.catalogue").joinpath("page.css").read_text(encoding="utf-8")
    families = [name for name in TITLES if any(one.family == name for one in sections)]
    links = "".join(f'<a href="#{name}">{TITLES[name]}</a>' for name in families)
    walls = "".join(_wall(name, sections) for name in families)
    bodies = "".join(_family(name, sections) for name in families)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>headtohead: the catalogue</title><style>{style}</style></head>\n<body>"
        f"<header><h1>The catalogue</h1><p>Every variant that headtohead compares: what it "
        f"computes, what it costs, what it cannot be combined with.</p><nav>{links}</nav></header>"
        f"\n<main>{walls}{bodies}</main></body></html>\n"
    )


def _wall(family: str, sections: Sequence[Section]) -> str:
    cards = "".join(
        f'<a class="card" href="#{family}-{one.name}" title="{escape(_plain(one.summary))}">{one.card.strip()}</a>'
        for one in sections
        if one.family == family
    )
    return f'<h2>{TITLES[family]}</h2><div class="wall">{cards}</div>\n'


def _family(family: str, sections: Sequence[Section]) -> str:
    members = [one for one in sections if one.family == family]
    letters = f"<p>{_text(LETTERS)}</p>" if family in ("positional", "attention") else ""
    return (
        f'<h2 id="{family}">{TITLES[family]}</h2><div class="about"><p>{_text(ABOUT[family])}</p>'
        f"{letters}</div>{''.join(_section(one) for one in members)}"
    )


def _section(one: Section) -> str:
    return (
        f'<section id="{one.family}-{one.name}"><h3>{escape(one.name)}</h3>'
        f'<p class="summary">{_text(one.summary)}</p>{"".join(_parts(one))}</section>\n'
    )


def _parts(one: Section) -> Iterator[str]:
    if one.formula:
        yield f'<p class="formula">{one.formula}</p>'
    if one.pictures:
        yield f'<div class="pictures">{"".join(svg.strip() for _, _, svg in one.pictures)}</div>'
    if one.untrained:
        yield ('<p class="note">Trained numbers are shown as they are drawn at the start, with seed 1.</p>')
    if one.said.idea and one.said.idea != one.summary:
        yield f"<p>{_text(one.said.idea)}</p>"
    if one.said.paper:
        yield f"<p><b>Paper</b> {_text(one.said.paper)}</p>"
    if one.said.departs:
        yield f"<p><b>Departs from it</b> {_text(one.said.departs)}</p>"
    yield f"<pre>{escape(one.use)}</pre>"
    rows = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{_text(value)}</td></tr>' for name, value in one.facts)
    yield f'<div class="scroll"><table>{rows}</table></div>'
    if one.promises:
        yield f"<p><b>Promises</b>, which h2h check holds it to:</p>{_list(one.promises)}"
    if one.refused:
        yield f"<p><b>Not defined</b>, and refused by a plan:</p>{_list(one.refused)}"
    if one.options:
        yield _table(("option", "type", "default", "meaning"), one.options)
    if one.pairs:
        yield _table(("split", "part", "source", "target"), one.pairs)


def _list(items: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{_text(item)}</li>' for item in items)}</ul>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{top}</tr>{body}</table></div>'


def _text(words: str) -> str:
    """Return a text with its code and its arXiv numbers marked."""
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(words, quote=False))
    marked = ARXIV.sub(r'<a href="https://arxiv.org/abs/\1">arXiv:\1</a>', marked)
    return marked.replace("\n\n", "</p><p>")


def _plain(words: str) -> str:
    return words.replace("`", "")
