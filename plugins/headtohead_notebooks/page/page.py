"""Write the page: experiments, choices and measured pitfalls as one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from markupsafe import Markup

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
    measured = [measure_notebook(notebook.recipe, cache, data_file) for notebook in NOTEBOOKS]
    content = PageContent(
        results=tuple(read_result(edition, runs, out) for edition in experiments),
        configs=[config for config, _ in measured],
        pitfalls=[pitfalls for _, pitfalls in measured],
        quick=quick,
        command=command,
    )
    with writing(out, "choose another folder with --out"):
        out.mkdir(parents=True, exist_ok=True)
        (out / "index.html").write_text(_html(content), encoding="utf-8", newline="\n")
    return out / "index.html"


def _html(content: PageContent) -> str:
    """Return the page with all styles and pictures inside."""
    styles = [
        resources.files(package).joinpath("templates", name).read_text("utf-8")
        for package, name in (
            ("headtohead.report", "report.css"),
            ("headtohead_notebooks.page", "notebooks.css"),
        )
    ]
    template = environment("headtohead_notebooks.page", html=True).get_template("index.html.j2")
    return visible(
        template.render(
            c=content,
            css=Markup("\n".join(styles)),
            policy=content_policy(),
            difference_text=difference_text,
            code_spans=_code_spans,
            plain=plain,
        )
    )


def _code_spans(text: str) -> Markup:
    """Return a text in which the parts between backticks are code."""
    parts = text.split("`")
    return Markup().join(
        Markup("<code>{}</code>" if index % 2 else "{}").format(part)
        for index, part in enumerate(parts)
    )
