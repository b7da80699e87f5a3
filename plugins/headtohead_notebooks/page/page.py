"""Write the page: experiments, choices and measured pitfalls as one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from markupsafe import Markup, escape

from headtohead.escaping import content_policy, visible
from headtohead.files import writing
from headtohead.report.render import environment
from headtohead_notebooks.page.content import (
    PageContent,
    difference_text,
    measure_notebook,
    read_result,
)
from headtohead_notebooks.page.descriptions import NOTEBOOKS
from headtohead_notebooks.page.editions import Edition
from headtohead_notebooks.page.numbers import plain


def write_page(
    experiments: Sequence[Edition],
    *,
    runs: Path,
    out: Path,
    cache: Path,
    data_file: Path | None,
    command: str,
    quick: bool,
) -> Path:
    """Write ``out/index.html`` from the existing runs and return its path.

    Args:
        experiments: The experiments as they are run.
        runs: Folder of run directories.
        out: Folder of the page, which also contains the reports of the experiments.
        cache: Folder of downloads and prepared data.
        data_file: Sentence pairs for the recipe without built-in data.
        command: The command that writes the page, as the user typed it.
        quick: Whether the runs are those of the quick form.

    Raises:
        HeadToHeadError: If a record cannot be read or the page cannot be written.
    """
    configs = []
    pitfalls = []
    for notebook in NOTEBOOKS:
        config, measured = measure_notebook(notebook.recipe, cache, data_file)
        configs.append(config)
        pitfalls.append(measured)
    content = PageContent(
        results=tuple(read_result(edition, runs, out) for edition in experiments),
        configs=configs,
        pitfalls=pitfalls,
        quick=quick,
        command=command,
    )
    page = out / "index.html"
    with writing(out, "choose another folder with --out"):
        out.mkdir(parents=True, exist_ok=True)
        page.write_text(_html(content), encoding="utf-8", newline="\n")
    return page


def _html(content: PageContent) -> str:
    """Return the page with all styles and pictures inside."""
    report_style = _style("headtohead.report", "report.css")
    page_style = _style("headtohead_notebooks.page", "notebooks.css")
    pages = environment("headtohead_notebooks.page", html=True)
    template = pages.get_template("index.html.j2")
    page = template.render(
        c=content,
        css=Markup(f"{report_style}\n{page_style}"),
        policy=content_policy(),
        difference_text=difference_text,
        code_spans=_code_spans,
        plain=plain,
    )
    return visible(page)


def _style(package: str, name: str) -> str:
    file = resources.files(package).joinpath("templates", name)
    return file.read_text("utf-8")


def _code_spans(text: str) -> Markup:
    """Return a text in which the parts between backticks are code."""
    html = Markup()
    for index, part in enumerate(text.split("`")):
        is_code = index % 2 == 1
        if is_code:
            html += Markup("<code>{}</code>").format(part)
        else:
            html += escape(part)
    return html
