"""The block types of a report; every output format renders the same list of blocks.

A text is a string, a styled piece such as `Span`, or a tuple of both in reading order. Texts are not
escaped; the renderers escape them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

FOLDED_ROWS = 24
"""Largest number of rows of a table that is not folded."""


@dataclass(frozen=True)
class Span:
    """A styled piece of text; ``alarm`` is a warning, ``negative`` has the colour of negative weights in maps."""

    text: str
    style: Literal["strong", "emphasis", "code", "alarm", "negative"]


@dataclass(frozen=True)
class Link:
    """A link to a file in the report's folder, or with ``#`` to a heading."""

    text: str
    target: str


@dataclass(frozen=True)
class VariantTitle:
    """A variant's title, optionally with its colour in the figures."""

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
    """A heading; headings with an ``anchor`` and a short ``navigation`` text are in the page's contents."""

    level: int
    text: str
    anchor: str = ""
    navigation: str = ""


@dataclass(frozen=True)
class Contents:
    """Links to the headings with an anchor, in formats with such links."""


@dataclass(frozen=True)
class Paragraph:
    """A paragraph; ``role`` determines its style."""

    text: Text
    role: Literal["body", "answer", "banner", "note", "footer"] = "body"


@dataclass(frozen=True)
class Prose:
    """Markdown by the author of the experiment, rendered without raw HTML and without images."""

    markdown: str


@dataclass(frozen=True)
class BulletList:
    """A list of short texts."""

    items: tuple[Text, ...]


@dataclass(frozen=True)
class Definitions:
    """Terms with their values."""

    items: tuple[tuple[str, Text], ...]


@dataclass(frozen=True)
class Column:
    """A column of a table; HTML keeps line breaks in ``heading``."""

    heading: str
    align: Literal["left", "right"] = "right"
    tooltip: str = ""
    wrap: bool = False


@dataclass(frozen=True)
class CellNote:
    """An addition to a cell's text, such as the interval of a mean; a page hides ``details`` until they are opened."""

    text: Text
    role: Literal["interval", "interval wrap", "pitfalls", "details"] = "interval"


@dataclass(frozen=True)
class TableCell:
    """A cell of a table; ``shade`` is the background colour in percent."""

    text: Text
    notes: tuple[CellNote, ...] = ()
    tooltip: str = ""
    shade: int = 0


@dataclass(frozen=True)
class TableRow:
    """A row of a table; missing cells at its end are empty."""

    cells: tuple[TableCell, ...]
    emphasised: bool = False


@dataclass(frozen=True)
class DataTable:
    """A table; in a ``grid``, rows and columns are the values of two axes."""

    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    grid: bool = False

    @property
    def folded(self) -> str:
        """The number of rows as text if a page shows only the first rows until the reader opens the table."""
        return f"{len(self.rows)} rows" if len(self.rows) > FOLDED_ROWS and not self.grid else ""


@dataclass(frozen=True)
class NamedFigure:
    """A figure: its file name without ``.svg``, its alternative text and its caption."""

    name: str
    alt: str
    caption: str = ""


@dataclass(frozen=True)
class CodeBlock:
    """Preformatted text such as commands or a file."""

    text: str
    language: str = ""


@dataclass(frozen=True)
class AttentionMaps:
    """Interactive attention maps, drawn from ``data`` by the page's script.

    Other formats, and pages without scripts, show ``figure``.
    """

    figure: NamedFigure
    data: Mapping[str, Any]


@dataclass(frozen=True)
class TranslationOutput:
    """A translation of a sentence and the variants that produced it."""

    hypothesis: str
    exact: bool
    variants: tuple[VariantTitle, ...]


@dataclass(frozen=True)
class SentenceTranslations:
    """A sentence, its reference translations and the variants' translations."""

    source: str
    references: str
    outputs: tuple[TranslationOutput, ...]


@dataclass(frozen=True)
class Details:
    """Blocks that a page hides until the reader opens the summary."""

    summary: str
    blocks: tuple[Block, ...]


Block = (
    Heading
    | Contents
    | Paragraph
    | Prose
    | BulletList
    | Definitions
    | DataTable
    | NamedFigure
    | CodeBlock
    | AttentionMaps
    | SentenceTranslations
    | Details
)
