"""A section of a report: a title, a sentence, a table and a figure; every output format renders the same sections."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat, zip_longest
from textwrap import wrap
from typing import Any, NamedTuple

import pandas as pd

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.wording import ends, leveled
from headtohead.storage.metrics import show, show_p
from headtohead_judge.paired_tests import Difference, Summary
from headtohead_judge.verdicts import BEYOND, SizeTest

_NUMBER = re.compile(r"[+−±<∞]? ?\d.*|[–∞]?|.*diverged", re.DOTALL)

MIN_NAME_WIDTH = 24
"""Minimum width of the names of contrasts in the terminal, in characters."""


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        title: The heading.
        text: A sentence below the heading.
        frame: A table of texts. The first line of a cell is its value; further lines, such as an interval, are smaller.
        figure: Name of a figure, which is omitted if it is not drawn, with its ``caption``.
        lines: A list below the table.
        code: Commands or a file, preformatted.
        maps: Data of the interactive attention maps.
        shade: Background colour of the cells of ``frame`` in percent, by row.
        parts: Sections within this section.
    """

    title: str
    text: str = ""
    frame: pd.DataFrame | None = None
    figure: str = ""
    caption: str = ""
    lines: Sequence[str] = ()
    code: str = ""
    maps: Mapping[str, Any] | None = None
    shade: Sequence[Sequence[int]] = ()
    parts: Sequence[Section] = ()

    @property
    def anchor(self) -> str:
        """The heading as an identifier."""
        return re.sub(r"\W+", "-", self.title.lower()).strip("-")

    @property
    def columns(self) -> list[str]:
        """The headings of the table."""
        if self.frame is None:
            return []
        return list(map(str, self.frame.columns))

    @property
    def rows(self) -> list[list[str]]:
        """The cells of the table."""
        if self.frame is None:
            return []
        return self.frame.to_numpy().tolist()

    @property
    def numeric(self) -> list[bool]:
        """Whether all cells of a column are numbers, which are right-aligned."""
        columns = zip(*self.rows, strict=True)
        return [all(map(_NUMBER.fullmatch, cells)) for cells in columns]


class Bold(str):
    """A cell whose first line is bold in Markdown and LaTeX."""


def table(rows: Iterable[Mapping[str, str]]) -> pd.DataFrame | None:
    """Return a row per mapping with its names as columns, or None without rows; missing cells are empty."""
    frame = pd.DataFrame(list(rows), dtype=object)
    if frame.empty:
        return None
    return frame.fillna("")


class _TextRow(NamedTuple):
    """A row of a table of contrasts in the terminal: name, number, a line per verdict, notes below."""

    name: str
    number: str
    verdicts: list[str]
    notes: list[str]


def text_lines(frame: pd.DataFrame | None, width: int = 80) -> Iterator[str]:
    """Yield a table of contrasts as lines for the terminal: names, numbers and verdicts side by side, notes below.

    Names are wrapped, but never below ``MIN_NAME_WIDTH`` characters; a line can then be wider than ``width``. A row
    with several verdicts has a line for each. No lines without a table.

    Args:
        frame: A table with at least one row and three columns: name, number and one or more verdicts. None for no
            table.
        width: Width of the terminal in characters.
    """
    if frame is None:
        return
    rows = _text_rows(frame)
    number_width = max(len(row.number) for row in rows)
    verdict_width = max(len(verdict) for row in rows for verdict in row.verdicts)
    room = max(width - number_width - verdict_width - 4, MIN_NAME_WIDTH)
    names = [wrap(row.name, room, break_on_hyphens=False) for row in rows]
    name_width = max(len(line) for lines in names for line in lines)
    for row, lines in zip(rows, names, strict=True):
        for name, number, verdict in zip_longest(lines, [row.number], row.verdicts, fillvalue=""):
            yield f"{name:{name_width}}  {number:>{number_width}}  {verdict}".rstrip()
        for note in row.notes:
            yield f"  {note}"


def _text_rows(frame: pd.DataFrame) -> list[_TextRow]:
    """Return the headings of a table of contrasts as the first row, then its rows.

    The first line of a name or a number is its value; further lines of a name are notes, those of a number are left
    out. A verdict is a word, then its intervals, aligned over all rows.

    Args:
        frame: A table with at least one row and three columns: name, number and one or more verdicts.
    """
    name_heading, number_heading, *verdict_headings = frame.columns
    headings = _TextRow(name_heading, number_heading, [", ".join(verdict_headings)], [])
    rows = [headings]
    cells = frame.to_numpy().tolist()
    word_width = max(len(cell.split("\n")[0]) for _, _, *verdicts in cells for cell in verdicts)
    for name_cell, number_cell, *verdict_cells in cells:
        name, *notes = name_cell.split("\n")
        number = number_cell.split("\n")[0]
        verdicts = []
        for cell in verdict_cells:
            word, *intervals = cell.split("\n")
            verdicts.append(f"{word:{word_width}}  {' '.join(intervals)}".rstrip())
        rows.append(_TextRow(name, number, verdicts, notes))
    return rows


def with_interval(
    mean: float, low: float, high: float, metric: str, *, signed: bool = False, like: float = 0.0
) -> str:
    """Return a mean, and on a second line its interval if it is finite; ``like`` as in `show`."""
    text = show(mean, metric, signed=signed, like=like)
    if not math.isfinite(low):
        return text
    return f"{text}\n{ends(low, high, metric, signed=signed, like=like)}"


def score(summary: Summary, metric: str) -> str:
    """Return a mean over seeds, and on a second line its interval; with fewer than two seeds the mean alone."""
    return with_interval(summary.mean, summary.low, summary.high, metric)


def difference(paired: Difference | None, metric: str, like: float = 0.0) -> str:
    """Return a difference with its 95 % interval; a dash without a test, no interval with a single seed."""
    if paired is None:
        return "–"
    return with_interval(paired.mean, paired.low, paired.high, metric, signed=True, like=like)


JUDGED_AS = (
    " A difference that is also a {kind} contrast has the p-value and verdict of that contrast."
)


def replaced(contrasts: Iterable[ContrastResult]) -> str:
    """Return a sentence on contrasts with the tests of another family; empty without any."""
    kinds = []
    for contrast in contrasts:
        kind = contrast.judged_as
        if kind and kind != contrast.family and kind not in kinds:
            kinds.append(kind)
    return "".join(JUDGED_AS.format(kind=kind) for kind in kinds)


def contrast_table(
    contrasts: Sequence[ContrastResult],
    first: Iterable[Mapping[str, str]],
    last: Iterable[Mapping[str, str]] = repeat({}),
) -> pd.DataFrame | None:
    """Return the tests of contrasts: difference, intervals of direction and size, verdict, p-values, effect size.

    None without contrasts. The interval of the size has a column only if a contrast has a test of it. A contrast
    without a test has dashes, and its reason below the verdict.

    Args:
        contrasts: The contrasts.
        first: Further cells of each row by column, before the tests. As long as ``contrasts`` or infinite: contrasts
            beyond the shorter of ``first`` and ``last`` have no row.
        last: Like ``first``, after the tests.
    """
    has_size = any(contrast.judgement.size_test for contrast in contrasts)
    rows = []
    for contrast, before, after in zip(contrasts, first, last, strict=False):
        row = dict(before)
        row["difference"] = contrast.difference_text
        row["interval of the direction"] = leveled(contrast.judgement.interval, contrast)
        if has_size:
            row["interval of the size"] = _size_cell(contrast, contrast.judgement.size_test)
        row["verdict"] = contrast.verdict
        if contrast.reason:
            row["verdict"] += f"\n{contrast.reason}"
        rows.append(row | _p_values(contrast) | dict(after))
    return table(rows)


def _size_cell(contrast: ContrastResult, test: SizeTest | None) -> str:
    """Return the interval of a size, and below it the p-value of the test within the margin; a dash without a test.

    A size beyond the margin has no p-value. A last line says if the margin was set late.
    """
    if test is None:
        return "–"
    lines = [leveled(test.interval, contrast)]
    if contrast.size != BEYOND:
        lines.append(f"TOST p {show_p(test.holm_p)}")
    if contrast.late_margin:
        lines.append("margin set after results existed")
    return "\n".join(lines)


def _p_values(contrast: ContrastResult) -> dict[str, str]:
    """Return the cells of the p-values of a difference and its effect size, by column; dashes without a test."""
    cells = {"Holm p": show_p(contrast.judgement.holm_p)}
    paired = contrast.paired
    if paired is None:
        cells["paired t p"] = "–"
        cells["sign-flip p"] = "–"
        cells["effect"] = "–"
    else:
        cells["paired t p"] = show_p(paired.paired_p)
        cells["sign-flip p"] = show_p(paired.sign_flip_p)
        cells["effect"] = show(paired.effect, "effect", signed=True, digits=-2)
    return cells
