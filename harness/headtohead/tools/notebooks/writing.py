"""Writing the page: what was run and measured, as one HTML file and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from headtohead.errors import HeadToHeadError
from headtohead.plugins.registry import Registry
from headtohead.report.markdown import markdown_escape
from headtohead.tools.notebooks.content import Content, read_study
from headtohead.tools.notebooks.drawing import draw, interval
from headtohead.tools.notebooks.editions import Edition
from headtohead.tools.notebooks.known import NOTEBOOKS
from headtohead.tools.notebooks.measured import measure

KEPT = "evidence"
"""Folder beside the page in which evidence is kept."""


def write_page(
    made: Sequence[Edition],
    *,
    runs: Path,
    out: Path,
    registry: Registry,
    cache: Path,
    data_file: Path | None,
    command: str,
    quick: bool,
) -> Path:
    """Write ``out/index.html`` and ``out/report.md`` from the runs that there are.

    Args:
        made: The experiments.
        runs: Folder of run directories.
        out: Folder of the page, with the reports of the experiments in it.
        registry: Of this process.
        cache: Of downloads and prepared data.
        data_file: Sentence pairs for the recipe whose data is no part of the program.
        command: Typed by the reader to make the page again.
        quick: Whether the runs are those of the quick form.

    Raises:
        HeadToHeadError: If a record cannot be read or a file cannot be written.
    """
    measured = [measure(one, registry, cache, out / KEPT, data_file) for one in NOTEBOOKS]
    content = Content(
        studies=tuple(read_study(one, runs, out) for one in made),
        configs=[config for config, _ in measured],
        pitfalls=[found for _, found in measured],
        registry=registry,
        quick=quick,
        command=command,
    )
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in (("report.md", markdown_page(content)), ("index.html", html_page(content))):
            (out / name).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise HeadToHeadError(
            f"the page cannot be written to '{out}': {error.strerror}; name another folder with --out"
        ) from error
    return out / "index.html"


def html_page(content: Content) -> str:
    """Return the page, which needs nothing beside it."""
    styles = (("headtohead.report", "report.css"), ("headtohead.tools.notebooks", "notebooks.css"))
    css = "\n".join(_asset(room, name) for room, name in styles)
    return _environment(True).get_template("index.html.j2").render(c=content, css=Markup(css))


def markdown_page(content: Content) -> str:
    """Return the same without pictures, as Markdown."""
    text = _environment(False).get_template("report.md.j2").render(c=content)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


@cache
def _environment(html: bool) -> Environment:
    environment = Environment(
        loader=PackageLoader("headtohead.tools.notebooks"),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["md"] = markdown_escape
    environment.filters["ticks"] = _ticks
    environment.globals["draw"] = draw
    environment.globals["interval"] = interval
    environment.globals["line_svg"] = _line
    environment.globals["score_svg"] = _score
    return environment


def _line(line: Any, ends: tuple[float, float]) -> Markup:
    change = line.change
    return interval(change.low, change.mean, change.high, ends)


def _score(score: Any) -> Markup:
    return interval(score.summary.low, score.summary.mean, score.summary.high, (0.0, 1.0))


def _ticks(text: str) -> Markup:
    """Return a text whose parts between backticks are code."""
    parts = str(text).split("`")
    return Markup().join(
        Markup("<code>{}</code>" if place % 2 else "{}").format(part) for place, part in enumerate(parts)
    )


def _asset(room: str, name: str) -> str:
    return (resources.files(room) / "templates" / name).read_text("utf-8")
