"""Render a table as LaTeX with the rules of the package booktabs."""

from __future__ import annotations

from collections.abc import Sequence

from headtohead.escaping import latex_escape
from headtohead.report.blocks import CellNote, DataTable, Span, TableCell, Text


def latex_table(table: DataTable, *, caption: str, label: str, notes: Sequence[str]) -> str:
    r"""Return a ``table`` environment; the document needs ``\usepackage{booktabs}``.

    Args:
        table: The table.
        caption: The caption.
        label: The label is ``tab:`` followed by this text.
        notes: Sentences below the table.
    """
    alignment = "".join("l" if column.align == "left" else "r" for column in table.columns)
    header = " & ".join(latex_escape(column.heading) for column in table.columns)
    rows = [" & ".join(map(_cell, row.cells)) for row in table.rows]
    return "\n".join(
        [
            r"% Requires \usepackage{booktabs}.",
            r"\begin{table}",
            r"  \centering",
            r"  \small",
            rf"  \caption{{{latex_escape(caption)}}}",
            rf"  \label{{tab:{_label(label)}}}",
            rf"  \begin{{tabular}}{{{alignment}}}",
            r"    \toprule",
            rf"    {header} \\",
            r"    \midrule",
            *(rf"    {row} \\" for row in rows),
            r"    \bottomrule",
            r"  \end{tabular}",
            "",
            r"  \medskip",
            rf"  \parbox{{\linewidth}}{{\footnotesize {' '.join(map(latex_escape, notes))}}}",
            r"\end{table}",
            "",
        ]
    )


def _cell(cell: TableCell) -> str:
    return " ".join([_text(cell.text), *map(_note, cell.notes)])


def _note(note: CellNote) -> str:
    return rf"{{\footnotesize ({_text(note.text)})}}"


def _text(text: Text) -> str:
    if isinstance(text, tuple):
        return "".join(map(_text, text))
    if isinstance(text, str):
        return latex_escape(text)
    escaped = latex_escape(text.text)
    return rf"\textbf{{{escaped}}}" if isinstance(text, Span) and text.style == "strong" else escaped


def _label(name: str) -> str:
    r"""Return a name for ``\label`` and ``\ref``, which accept no special characters."""
    return "".join(character if character.isascii() and character.isalnum() else "-" for character in name)
