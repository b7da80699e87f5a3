"""The catalogue as Markdown: a wall of small pictures, and a page for each family."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from headtohead.tools.catalogue.content import Section
from headtohead.tools.catalogue.docstrings import linked

TITLES = {
    "positional": "Positional encodings",
    "attention": "Attention styles",
    "masking": "Masking schemes",
    "dataset": "Datasets",
}
ABOUT = {
    "positional": "Pictures are of 16 positions in a model of width 32 with 4 heads. What is added "
    "to embeddings is shown as it is; below it stand the products of the positions' vectors. A "
    "rotation is shown by q·k of equal vectors, averaged over all directions. A bias is shown as "
    "it is added to the scores of the first layer, of each head; cells that the decoder's causal "
    "mask hides are grey.",
    "attention": "The first picture has a box for each head, drawn to scale in a model of width 32 "
    "with 4 heads; boxes of one colour belong together. The others are the weights of the first "
    "layer of a model that was never trained (seed 1, sinusoids, masking `padding-causal`), for "
    "one pair of sentences; cells that the mask hides are grey.",
    "masking": "Sentences of 13 tokens, padded to 16: blue is seen, grey is hidden.",
    "dataset": "The first pairs of each part of a split.",
}
LETTERS = (
    "d: width of the model (`model.d_model`) · h: heads · L: layers · n: tokens of a sentence that "
    "reads itself; options stand by their names. Parameters are without biases; those come on top "
    "where `model.bias` is on. Operations are those of matrix products, two for each "
    "multiplication with its addition, in one attention. The forms are found from counts and "
    "checked against others."
)
MADE = "Made from the program by `make docs`."
WIDTH = 320


def pages(sections: Sequence[Section]) -> Mapping[str, str]:
    """Return every page by its file's name."""
    found = {"index.md": _index(sections)}
    for family in TITLES:
        members = [one for one in sections if one.family == family]
        if members:
            found[f"{family}.md"] = "\n".join(_family(family, members)).rstrip() + "\n"
    return found


def _index(sections: Sequence[Section]) -> str:
    lines = [
        "# Catalogue",
        "",
        f"{MADE} A picture leads to what it shows: formula, paper, options, cost, and what it "
        "cannot be combined with. [all.html](all.html) is the same on one page. A plugin of your "
        "own joins in: `python -m headtohead.tools.catalogue OUT --plugin FILE`.",
        "",
    ]
    for family, title in TITLES.items():
        members = [one for one in sections if one.family == family]
        if not members:
            continue
        lines += [f"## [{title}]({family}.md)", ""]
        lines += [f"[![{one.name}](pictures/{family}-{one.name}.svg)]({family}.md#{one.name})" for one in members]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _family(family: str, members: Sequence[Section]) -> Iterator[str]:
    yield from (f"# {TITLES[family]}", "", f"{MADE} [All of the catalogue](index.md).", "")
    yield from (ABOUT[family], "")
    if family in ("positional", "attention"):
        yield from (LETTERS, "")
    yield " · ".join(f"[{one.name}](#{one.name})" for one in members)
    for one in members:
        yield from ("", f"## {one.name}", "", *_section(one))


def _section(one: Section) -> Iterator[str]:
    yield f"**{_prose(one.summary)}**"
    if one.formula:
        yield from ("", f"> {one.formula}")
    yield ""
    if one.pictures:
        for file, words, _ in one.pictures:
            yield (f'<img src="pictures/{file}" width="{WIDTH}" align="top" alt="{escape(f"{one.name}, {words}")}">')
        yield ""
    if one.untrained:
        yield from ("*Trained numbers are shown as they are drawn at the start, with seed 1.*", "")
    if one.said.idea and one.said.idea != one.summary:
        yield from (_prose(one.said.idea), "")
    if one.said.paper:
        yield from (f"Paper: {linked(_prose(one.said.paper))}", "")
    if one.said.departs:
        yield from (f"Departs from it: {_prose(one.said.departs)}", "")
    yield from ("```yaml", one.use, "```", "")
    yield from ("| | |", "|---|---|")
    yield from (f"| {name} | {_cell(value)} |" for name, value in one.facts)
    yield ""
    if one.promises:
        yield from ("Promises, which `h2h check` holds it to:", "")
        yield from (f"- {_prose(promise)}" for promise in one.promises)
        yield ""
    if one.refused:
        yield from ("Not defined, and refused by a plan:", "")
        yield from (f"- {_prose(reason)}" for reason in one.refused)
        yield ""
    if one.options:
        yield from ("| option | type | default | meaning |", "|---|---|---|---|")
        for name, kind, default, meaning in one.options:
            yield f"| `{name}` | {_cell(kind)} | `{default}` | {_cell(meaning)} |"
        yield ""
    if one.pairs:
        yield from ("| split | part | source | target |", "|---|---|---|---|")
        yield from (f"| {' | '.join(_cell(cell) for cell in pair)} |" for pair in one.pairs)
        yield ""


def _cell(words: str) -> str:
    return _prose(words).replace("|", "\\|")


def _prose(words: str) -> str:
    """Return a text whose signs are no tags, outside of code."""
    return re.sub(r"`[^`]*`|<", lambda one: "&lt;" if one[0] == "<" else one[0], words)
