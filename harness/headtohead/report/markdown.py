"""Rendering blocks as Markdown, with links to the figures beside the file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import assert_never

from headtohead.report.blocks import (
    AttentionMaps,
    Block,
    BulletList,
    CodeBlock,
    Contents,
    Definitions,
    Details,
    Heading,
    Link,
    NamedFigure,
    Paragraph,
    Prose,
    SentenceTranslations,
    Span,
    Table,
    TableCell,
    TableRow,
    Text,
    TranslationOutput,
    VariantTitle,
    VerdictLabel,
)

_SPANS = {"strong": "**{}**", "emphasis": "*{}*", "alarm": "**{}**", "negative": "{}"}
_PARAGRAPHS = {"body": "{}", "answer": "**{}**", "banner": "> **{}**", "note": "{}", "footer": "{}"}


def markdown_page(blocks: Sequence[Block]) -> str:
    """Return the report as a Markdown file."""
    return "\n\n".join(filter(None, map(_block, blocks))) + "\n"


def markdown_escape(text: object) -> str:
    """Return text that Markdown shows as it is, in a paragraph or a table cell."""
    plain = re.sub(r"\s*[\r\n]+\s*", " ", str(text))
    plain = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~!])", r"\\\1", plain)


def _block(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f"{'#' * level} {markdown_escape(text)}"
        case Contents():
            return ""
        case Paragraph(text, role):
            return _PARAGRAPHS[role].format(_text(text))
        case Prose(markdown):
            return markdown.strip().replace("&", "&amp;").replace("<", "&lt;")
        case BulletList(items):
            return "\n".join(f"- {_text(item)}" for item in items)
        case Definitions(items):
            return "\n".join(f"- {markdown_escape(term)}: {_text(text)}" for term, text in items)
        case Table():
            return _table(block)
        case NamedFigure(name, alt, caption):
            picture = f"![{markdown_escape(alt)}](figures/{name}.svg)"
            return "\n\n".join([picture, *([markdown_escape(caption)] if caption else [])])
        case CodeBlock(text, language):
            return _fenced(text, language)
        case AttentionMaps(figure):
            return _block(figure)
        case SentenceTranslations(source, references, outputs):
            heading = f"**{markdown_escape(source)}** → {markdown_escape(references)}"
            return "\n".join([heading, "", *map(_output, outputs)])
        case Details(summary, inner):
            return "\n\n".join(map(_block, [Heading(3, summary), *inner]))
        case _:
            assert_never(block)


def _text(text: Text) -> str:
    if isinstance(text, tuple):
        return "".join(map(_text, text))
    match text:
        case str():
            return markdown_escape(text)
        case Span(words, "code"):
            return f"`{words.replace('`', '')}`"
        case Span(words, style):
            return _SPANS[style].format(markdown_escape(words))
        case Link(words, target):
            return markdown_escape(words) if target.startswith("#") else f"[{markdown_escape(words)}]({target})"
        case VerdictLabel(words, kind):
            return f"**{markdown_escape(words)}**" if kind in ("better", "worse") else markdown_escape(words)
        case VariantTitle(words):
            return markdown_escape(words)
        case _:
            assert_never(text)


def _table(table: Table) -> str:
    head = _line(markdown_escape(column.heading.replace("-\n", "-")) for column in table.columns)
    sides = (":---:" if table.grid else "---" if column.align == "left" else "---:" for column in table.columns[1:])
    rule = f"|{'|'.join(['---', *sides])}|"
    return "\n".join([head, rule, *(_row(row, len(table.columns)) for row in table.rows)])


def _row(row: TableRow, columns: int) -> str:
    cells = [_cell(cell, strong=row.emphasised and number == 0) for number, cell in enumerate(row.cells)]
    return _line(cells + [""] * (columns - len(cells)))


def _cell(cell: TableCell, *, strong: bool) -> str:
    text = f"**{_text(cell.text)}**" if strong else _text(cell.text)
    return " ".join([text, *(f"({_text(note.text)})" for note in cell.notes)])


def _line(cells: Iterable[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _output(output: TranslationOutput) -> str:
    variants = "; ".join(map(_text, output.variants))
    return f"- {'✓' if output.exact else '✗'} {markdown_escape(output.hypothesis)} ({variants})"


def _fenced(text: str, language: str) -> str:
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
