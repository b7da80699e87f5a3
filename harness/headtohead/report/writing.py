"""Writing a report: analyse once, draw each figure once, write every file whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path

from matplotlib.figure import Figure

from headtohead.analysis.study import Analysis, analyse
from headtohead.errors import HeadToHeadError
from headtohead.figures import style
from headtohead.report.attention import sheet_svg
from headtohead.report.content import Content
from headtohead.report.figures.buckets import buckets_figure
from headtohead.report.figures.cost import cost_figure
from headtohead.report.figures.curves import curves_figure
from headtohead.report.figures.forest import forest_figure
from headtohead.report.figures.heads import heads_figure
from headtohead.report.figures.interaction import interaction_figure
from headtohead.report.figures.strip import strip_figure
from headtohead.report.figures.waterfall import waterfall_figure
from headtohead.report.rendering import html_page, markdown_page
from headtohead.storage.frames import load_frames
from headtohead.storage.paths import inside

FIGURES: dict[str, Callable[[Analysis], Figure | None]] = {
    "waterfall": waterfall_figure,
    "contrasts": forest_figure,
    "scores": strip_figure,
    "interactions": interaction_figure,
    "lengths": buckets_figure,
    "curves": curves_figure,
    "cost": cost_figure,
    "heads": heads_figure,
}


@dataclass(frozen=True)
class ReportPaths(os.PathLike[str]):
    """Where a report was written, and what it answers."""

    folder: Path
    html: Path
    markdown: Path
    csv: Path
    answer: str

    def __fspath__(self) -> str:
        return str(self.html)

    def _repr_html_(self) -> str:
        """Show the answer and its two main pictures as cell output in Jupyter."""
        parts = [f'<p style="font-size: 1.15em">{escape(self.answer)}</p>']
        for name in ("waterfall", "contrasts", "scores"):
            file = self.folder / "figures" / f"{name}.svg"
            if file.is_file():
                svg = file.read_text(encoding="utf-8")
                parts.append(f'<div style="background: white; max-width: 960px">{svg}</div>')
        return "".join([*parts, f"<p><code>{escape(str(self.html))}</code></p>"])


def write_report(
    experiment_dir: Path, reports_root: Path, *, allow_partial: bool = False, source: str | None = None
) -> ReportPaths:
    """Write ``reports_root/<experiment>/`` from an experiment's run directories.

    Args:
        experiment_dir: The folder that holds ``experiment.json``.
        reports_root: Where reports are kept; an earlier report of the experiment is replaced.
        allow_partial: Rank variants whose seeds are not all in, and say so on the report's face.
        source: Where the run directories came from, if not from the runs folder itself.

    Raises:
        HeadToHeadError: If a record cannot be read or a file cannot be written.
    """
    content = Content(analyse(load_frames(experiment_dir), allow_partial=allow_partial), source)
    return write_content(content, reports_root)


def write_content(content: Content, reports_root: Path) -> ReportPaths:
    """Write the files of a report into the folder of its experiment's name."""
    folder = inside(reports_root, content.analysis.frames.name, tree=True)
    with _writing_to(folder):
        (folder / "figures").mkdir(parents=True, exist_ok=True)
    figures = draw(content)
    paths = ReportPaths(folder, folder / "index.html", folder / "report.md", folder / "results.csv", content.answer)
    with _writing_to(folder):
        for old in (folder / "figures").glob("*.svg"):
            if old.stem not in figures:
                old.unlink()
        for name, svg in figures.items():
            _write(folder / "figures" / f"{name}.svg", svg)
        _write(paths.csv, content.analysis.frames.runs.reset_index().to_csv(index=False))
        _write(paths.markdown, markdown_page(content, figures))
        _write(paths.html, html_page(content, figures))
    return paths


@contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    """Name the folder in the error where it cannot be written to."""
    try:
        yield
    except OSError as error:
        raise HeadToHeadError(
            f"the report cannot be written to {folder}: {error.strerror}; name another folder with --reports"
        ) from error


def draw(content: Content) -> dict[str, str]:
    """Return the figures as SVG by name; those that have nothing to show are absent."""
    drawn: dict[str, str] = {}
    for name, function in FIGURES.items():
        figure = function(content.analysis)
        if figure is not None:
            drawn[name] = style.to_svg(figure, salt=name)
    if content.gallery is not None:
        drawn["attention"] = sheet_svg(content.gallery)
    return drawn


def _write(path: Path, text: str) -> None:
    """Replace a file as a whole, so that a reader never sees half of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
