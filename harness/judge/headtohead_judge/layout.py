"""Layout of lines and tables for the width of a terminal: text is broken between words, never inside a word.

Without a width, as in a pipe, every line and every row of a table is a single line.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from unicodedata import east_asian_width

from headtohead_judge.escaping import single_line

GAP = "  "
"""The space between two columns, and before the second and later lines of a broken text."""

_PIECES = re.compile(r"[^-/,=+_:|]*[-/,=+_:|]+|[^-/,=+_:|]+")
"""Parts of a word: a name such as ``split-heads`` may be broken after its punctuation."""


def text_width(text: str) -> int:
    """Return the columns of a text in a terminal; Chinese characters take two."""
    if text.isascii():
        return len(text)
    wide = sum(east_asian_width(character) in "WF" for character in text)
    return len(text) + wide


def broken(
    text: str, width: int | None, *, indent: str = GAP, splits_paths: bool = False
) -> list[str]:
    """Return a line as lines of at most ``width`` columns.

    A longer word is broken after its punctuation. A path or an address is not broken, so that it can be copied.

    Args:
        text: A line without hidden characters. The space before its first word stays.
        width: Maximum number of columns; None for any.
        indent: What precedes every line but the first, besides the space before the first word.
        splits_paths: Whether longer words with a slash are broken, too.
    """
    if width is None or text_width(text) <= width:
        return [text]
    start = text[: len(text) - len(text.lstrip())]
    lines = []
    line = start
    is_empty = True
    for word in text.split():
        pieces = [word]
        is_whole = "/" in word and not splits_paths
        if not is_whole and text_width(start + indent + word) > width:
            pieces = _PIECES.findall(word)
        for number, piece in enumerate(pieces):
            space = " " if number == 0 and not is_empty else ""
            if not is_empty and text_width(line + space + piece) > width:
                lines.append(line)
                line = start + indent
                space = ""
            line += space + piece
            is_empty = False
    return [*lines, line]


def table_lines(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Container[int] = (),
    width: int | None = None,
) -> Iterator[str]:
    """Yield the lines of a table; cells are broken where the table is wider than ``width``.

    If that is not enough, each row is printed as its first cell with a line per further cell.

    Args:
        columns: The headings.
        rows: The cells of each row.
        right: Indices of the right-aligned columns, whose cells are broken at spaces only.
        width: Maximum number of columns of the terminal; None for any.
    """
    headings = [single_line(heading) for heading in columns]
    texts = [[single_line(cell) for cell in row] for row in rows]
    widths = _column_widths(headings, texts, right, width)
    if widths is None:
        for row in texts:
            yield from broken(row[0], width, splits_paths=True)
            for heading, cell in zip(headings[1:], row[1:], strict=True):
                yield from broken(f"{GAP}{heading}: {cell}", width, splits_paths=True)
        return
    yield from _row_lines(headings, widths, right, is_heading=True)
    for row in texts:
        yield from _row_lines(row, widths, right)


def _column_widths(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Container[int],
    width: int | None,
) -> list[int] | None:
    """Return the width of each column, or None if the table is too wide with every cell broken."""
    widths = []
    whole_cells = []  # headings broken, cells whole
    words = []  # headings and cells broken
    for index, heading in enumerate(headings):
        cells = [row[index] for row in rows]
        widest_cell = max((text_width(cell) for cell in cells), default=0)
        heading_part = _longest(_PIECES.findall(heading))
        pieces: list[str] = []
        for cell in cells:
            pieces += [cell] if index in right else _PIECES.findall(cell)
        longest = max(heading_part, _longest(pieces))
        if index == 0:
            longest += len(GAP)
        widest = max(text_width(heading), widest_cell)
        widths.append(widest)
        whole_cells.append(max(heading_part, widest_cell))
        words.append(min(widest, longest))
    if width is None:
        return widths
    room = width - len(GAP) * (len(headings) - 1)
    numbers = [index for index in range(len(widths)) if index in right]
    texts = [index for index in range(len(widths)) if index not in right]
    _shrink(widths, whole_cells, numbers, room)
    _shrink(widths, words, texts, room)
    _shrink(widths, words, numbers, room)
    return widths if sum(widths) <= room else None


def _longest(pieces: Iterable[str]) -> int:
    """Return the width of the longest word of some texts."""
    return max((text_width(word) for piece in pieces for word in piece.split()), default=0)


def _shrink(widths: list[int], smallest: Sequence[int], columns: Sequence[int], room: int) -> None:
    """Reduce the widest of some columns, none below its smallest width, until the table fits."""
    while sum(widths) > room:
        wider = [index for index in columns if widths[index] > smallest[index]]
        if not wider:
            return
        widths[max(wider, key=widths.__getitem__)] -= 1


def _row_lines(
    row: Sequence[str], widths: Sequence[int], right: Container[int], *, is_heading: bool = False
) -> Iterator[str]:
    """Yield the lines of a row; the first cell's further lines are indented, which separates the rows."""
    cells = []
    for index, (text, width) in enumerate(zip(row, widths, strict=True)):
        indent = "" if is_heading or index else GAP
        cells.append(broken(text, width, indent=indent, splits_paths=True))
    for number in range(max(len(lines) for lines in cells)):
        padded = []
        for index, (lines, width) in enumerate(zip(cells, widths, strict=True)):
            line = lines[number] if number < len(lines) else ""
            spaces = " " * (width - text_width(line))
            padded.append(spaces + line if index in right else line + spaces)
        yield GAP.join(padded).rstrip()
