"""Render sections as HTML (a page, or a fragment for notebooks), as Markdown and as LaTeX."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib import resources
from string import Template
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from headtohead.escaping import (
    MAX_MARKDOWN,
    content_policy,
    is_safe_link,
    latex_escape,
    markdown_escape,
    safe_markdown,
    visible,
    visible_values,
)
from headtohead.figures.colours import themed
from headtohead.report.section import Bold, Section
from headtohead.report.setup import setup_line

if TYPE_CHECKING:
    import pandas as pd

    from headtohead.report.content import Report
    from headtohead.report.sections import ReportSections

LATEX_TABLE = Template(r"""% Requires \usepackage{booktabs}.
\begin{table}
\centering
\small
\caption{$caption}
\label{tab:$label}
$rows
\medskip
\parbox{\linewidth}{\footnotesize $notes}
\end{table}
""")


@cache
def environment(package: str, *, html: bool = False) -> Environment:
    """Return the Jinja environment of a package's folder ``templates``; the same object for the same arguments.

    A template that uses an undefined name raises ``jinja2.UndefinedError``. Templates of HTML escape every text;
    others escape with the filters ``escaped`` and ``cell``.

    Args:
        package: Import name of the package.
        html: Whether the templates are HTML.

    Raises:
        ValueError: If the package has no folder ``templates``.
    """
    templates = Environment(
        loader=PackageLoader(package),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters["escaped"] = markdown_escape
    templates.filters["cell"] = _cell
    templates.filters["prose"] = _prose
    templates.filters["safe_markdown"] = safe_markdown
    templates.filters["fence"] = _fence
    templates.filters["json"] = _json
    templates.filters["themed"] = _themed
    return templates


def tidy_markdown(text: str) -> str:
    """Return Markdown with at most one empty line between blocks."""
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def page(report: Report, sections: ReportSections, figures: Mapping[str, str]) -> str:
    """Return a report as a self-contained HTML page, with control characters made visible.

    Only a page with attention maps has a script, which its security policy permits.

    Args:
        report: The report.
        sections: Its sections.
        figures: SVG figures by name; a section whose figure is missing is printed without it.

    Raises:
        HeadToHeadError: If a file of the study is damaged, such as the stored values per example of a run.
    """
    folder = resources.files("headtohead.report") / "templates"
    css = (folder / "report.css").read_text("utf-8")
    scripts = []
    if any(section.maps for section in sections.details):
        script = (folder / "report.js").read_text("utf-8")
        scripts.append(script)
    template = environment("headtohead.report", html=True).get_template("page.html.jinja")
    html = template.render(
        report=report,
        sections=sections,
        figures=figures,
        setup=setup_line(report.analysis),
        policy=content_policy(*scripts),
        css=Markup(css),
        scripts=[Markup(script) for script in scripts],
    )
    return visible(html)


def fragment(
    *sections: Section,
    figures: Mapping[str, str] | None = None,
    heading: str = "",
    answer: str = "",
) -> str:
    """Return sections as HTML for notebook output, which has no style sheet; control characters are made visible.

    Args:
        sections: The sections.
        figures: SVG figures by name; a section whose figure is missing is printed without it.
        heading: A bold line above the sections; empty for none.
        answer: A paragraph below the heading; empty for none.
    """
    template = environment("headtohead.report", html=True).get_template("fragment.html.jinja")
    html = template.render(sections=sections, figures=figures or {}, heading=heading, answer=answer)
    return visible(html)


def markdown(
    report: Report, sections: ReportSections, figures: Collection[str], runs: str = "results.csv"
) -> str:
    """Return a report as Markdown with links to figures.

    Args:
        report: The report.
        sections: Its sections; the opening stands below the answer, without a title.
        figures: Names of the figures in the folder ``figures`` beside the page.
        runs: File of the results of every run, for a link. Empty for a page that stands alone, without this link.

    Raises:
        HeadToHeadError: If a file of the study is damaged, such as the stored values per example of a run.
    """
    template = environment("headtohead.report").get_template("report.md.jinja")
    text = template.render(
        report=report,
        setup=setup_line(report.analysis),
        sections=sections,
        figures=figures,
        runs=runs,
    )
    return visible(tidy_markdown(text))


def markdown_table(frame: pd.DataFrame | None) -> str:
    """Return a table as Markdown; empty without a table."""
    if frame is None:
        return ""
    template = environment("headtohead.report").get_template("table.md.jinja")
    return template.render(section=Section("", frame=frame)).strip()


def latex_table(frame: pd.DataFrame, *, caption: str, label: str, notes: Sequence[str]) -> str:
    r"""Return a ``table`` environment; the document needs ``\usepackage{booktabs}``.

    Args:
        frame: Cells of text, which are escaped; columns of numbers are right-aligned.
        caption: Its caption, which is escaped.
        label: Its label after ``tab:``; characters other than letters and digits become ``-``.
        notes: Sentences below the table, which are escaped.
    """
    alignment = ""
    for is_numeric in Section("", frame=frame).numeric:
        alignment += "r" if is_numeric else "l"
    escaped = frame.map(_latex_cell).rename(columns=latex_escape)
    rows = escaped.style.hide(axis="index").to_latex(hrules=True, column_format=alignment)
    escaped_notes = [latex_escape(note) for note in notes]
    return LATEX_TABLE.substitute(
        caption=latex_escape(caption),
        label=re.sub(r"[^A-Za-z0-9]", "-", label),
        rows=rows,
        notes=" ".join(escaped_notes),
    )


def _latex_cell(cell: str) -> str:
    """Return a cell of a LaTeX table, with the lines after the first small and in parentheses."""
    value, *notes = map(latex_escape, cell.split("\n"))
    text = rf"\textbf{{{value}}}" if isinstance(cell, Bold) else value
    for note in notes:
        text += rf" {{\footnotesize ({note})}}"
    return text


def _cell(cell: str) -> str:
    """Return a cell of a Markdown table, with the lines after the first in parentheses."""
    value, *notes = map(markdown_escape, cell.split("\n"))
    text = f"**{value}**" if isinstance(cell, Bold) else value
    for note in notes:
        text += f" ({note})"
    return text


def _fence(text: str) -> str:
    """Return the fence of a code block: more tildes than any row of tildes in the text."""
    rows = re.findall("~+", text)
    longest = max(map(len, rows), default=0)
    return "~" * max(3, longest + 1)


def _themed(svg: str) -> Markup:
    """Return an SVG figure for a page that may be dark, without further escapes."""
    return Markup(themed(svg))


def _prose(text: str) -> Markup:
    """Return Markdown as HTML, with raw HTML escaped, and without images and unsafe links."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).disable("image")
    parser.validateLink = is_safe_link  # type: ignore[assignment, method-assign]
    return Markup(parser.render(text[:MAX_MARKDOWN]))


def _json(value: Any) -> Markup:
    """Return JSON that is safe in a script element."""
    text = json.dumps(visible_values(value), ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))
