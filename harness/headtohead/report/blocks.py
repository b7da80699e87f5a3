"""The parts of a report: every output format renders the same list of these blocks.

Texts are plain: the renderers escape them, once. A text is a string, a marked piece, or a tuple of
both in reading order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Span:
    """A piece of a text that is set apart; ``alarm`` is a warning, ``negative`` a colour of maps."""

    text: str
    style: Literal["strong", "emphasis", "code", "alarm", "negative"]


@dataclass(frozen=True)
class Link:
    """A link to a file beside the report, or with ``#`` to a heading of it."""

    text: str
    target: str


@dataclass(frozen=True)
class VariantTitle:
    """A variant's title, with its colour in the figures where that helps to find it there."""

    text: str
    colour: str | None = None


@dataclass(frozen=True)
class VerdictLabel:
    """A verdict; ``kind`` is "better", "worse", "baseline" or "none"."""

    text: str
    kind: str


Inline = str | Span | Link | VariantTitle | VerdictLabel
Text = Inline | tuple[Inline, ...]


@dataclass(frozen=True)
class Heading:
    """A heading; one with an ``anchor`` and a short ``navigation`` text is in the page's contents."""

    level: int
    text: str
    anchor: str = ""
    navigation: str = ""


@dataclass(frozen=True)
class Contents:
    """Links to the headings that have an anchor, where the format has such links."""


@dataclass(frozen=True)
class Paragraph:
    """One paragraph; ``role`` chooses its look."""

    text: Text
    role: Literal["body", "answer", "banner", "note", "footer"] = "body"


@dataclass(frozen=True)
class Prose:
    """Markdown by the author of the experiment, shown without HTML and without remote pictures."""

    markdown: str


@dataclass(frozen=True)
class BulletList:
    """A list of short texts."""

    items: tuple[Text, ...]


@dataclass(frozen=True)
class Definitions:
    """Terms and what they stand for."""

    items: tuple[tuple[str, Text], ...]


@dataclass(frozen=True)
class Column:
    """A column of a table; a line break in ``heading`` is one in HTML."""

    heading: str
    align: Literal["left", "right"] = "right"
    tooltip: str = ""
    wrap: bool = False


@dataclass(frozen=True)
class Note:
    """What a cell adds to its text, such as the interval of a mean."""

    text: Text
    role: Literal["interval", "interval wrap", "pitfalls"] = "interval"


@dataclass(frozen=True)
class TableCell:
    """A cell of a table; ``shade`` is the percentage of colour behind it."""

    text: Text
    notes: tuple[Note, ...] = ()
    tooltip: str = ""
    shade: int = 0


@dataclass(frozen=True)
class TableRow:
    """A line of a table; one with fewer cells than columns ends in empty cells."""

    cells: tuple[TableCell, ...]
    emphasised: bool = False


@dataclass(frozen=True)
class Table:
    """Columns and rows; a ``grid`` has values of one axis as rows and of another as columns."""

    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    grid: bool = False


@dataclass(frozen=True)
class NamedFigure:
    """A figure by its file name without ``.svg``, what it shows, and what stands below it."""

    name: str
    alt: str
    caption: str = ""


@dataclass(frozen=True)
class CodeBlock:
    """Commands or a file, letter for letter."""

    text: str
    language: str = ""


@dataclass(frozen=True)
class AttentionMaps:
    """Maps that a page lets its reader choose from; elsewhere, and without scripts, ``figure``.

    ``data`` is what the page's script draws from.
    """

    figure: NamedFigure
    data: Mapping[str, Any]


@dataclass(frozen=True)
class TranslationOutput:
    """A translation of a sentence and the variants that wrote it."""

    hypothesis: str
    exact: bool
    variants: tuple[VariantTitle, ...]


@dataclass(frozen=True)
class SentenceTranslations:
    """A sentence, its reference translations, and what variants made of it."""

    source: str
    references: str
    outputs: tuple[TranslationOutput, ...]


@dataclass(frozen=True)
class Details:
    """Blocks that a page shows on request, below their summary."""

    summary: str
    blocks: tuple[Block, ...]


Block = (
    Heading
    | Contents
    | Paragraph
    | Prose
    | BulletList
    | Definitions
    | Table
    | NamedFigure
    | CodeBlock
    | AttentionMaps
    | SentenceTranslations
    | Details
)
