"""Render blocks as Markdown, with links to the figure files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import assert_never

from headtohead.escaping import markdown_code, markdown_escape, safe_markdown, visible
from headtohead.report.blocks import (
    AttentionMaps,
    Block,
    BulletList,
    CodeBlock,
    Contents,
    DataTable,
    Definitions,
    Details,
    Heading,
    Link,
    NamedFigure,
    Paragraph,
    Prose,
    SentenceTranslations,
    Span,
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
    return visible("\n\n".join(filter(None, map(_block, blocks))) + "\n")


def _block(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f"{'#' * level} {markdown_escape(text)}"
        case Contents():
            return ""
        case Paragraph(text, role):
            return _PARAGRAPHS[role].format(_text(text))
        case Prose(markdown):
            return safe_markdown(markdown)
        case BulletList(items):
            return "\n".join(f"- {_text(item)}" for item in items)
        case Definitions(items):
            return "\n".join(f"- {markdown_escape(term)}: {_text(text)}" for term, text in items)
        case DataTable():
            return _table(block)
        case NamedFigure(name, alt, caption):
            image = f"![{markdown_escape(alt)}](figures/{name}.svg)"
            # A hard line break keeps image and caption in one paragraph.
            return "\\\n".join([image, *([markdown_escape(caption)] if caption else [])])
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
        case Span(content, "code"):
            return markdown_code(content)
        case Span(content, style):
            return _SPANS[style].format(markdown_escape(content))
        case Link(content, target):
            return markdown_escape(content) if target.startswith("#") else f"[{markdown_escape(content)}]({target})"
        case VerdictLabel(content, kind):
            return f"**{markdown_escape(content)}**" if kind in ("better", "worse") else markdown_escape(content)
        case VariantTitle(content):
            return markdown_escape(content)
        case _:
            assert_never(text)


def _table(table: DataTable) -> str:
    header = _line(markdown_escape(column.heading.replace("-\n", "-")) for column in table.columns)
    alignments = (
        ":---:" if table.grid else "---" if column.align == "left" else "---:" for column in table.columns[1:]
    )
    rule = f"|{'|'.join(['---', *alignments])}|"
    count = [table.folded, ""] if table.folded else []
    return "\n".join([*count, header, rule, *(_row(row, len(table.columns)) for row in table.rows)])


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
