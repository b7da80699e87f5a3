"""Write a report: analyse the runs, draw the figures, and render the same blocks in every format."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure
from pandas.api.types import is_numeric_dtype

from headtohead.analysis.study import Analysis
from headtohead.errors import HeadToHeadError
from headtohead.escaping import spreadsheet_text
from headtohead.figures import style
from headtohead.files import replace, write_text
from headtohead.ownership import claim, owned, remove
from headtohead.report.answer_file import answer_file
from headtohead.report.attention import attention_figure
from headtohead.report.blocks import Block, NamedFigure, Paragraph, Span
from headtohead.report.content import ReportContent
from headtohead.report.document import report_blocks
from headtohead.report.figures.buckets import buckets_figure
from headtohead.report.figures.cost import cost_figure
from headtohead.report.figures.curves import curves_figure
from headtohead.report.figures.forest import forest_figure
from headtohead.report.figures.heads import heads_figure
from headtohead.report.figures.interaction import interaction_figure
from headtohead.report.figures.strip import strip_figure
from headtohead.report.html import html_blocks, html_page
from headtohead.report.markdown import markdown_page
from headtohead.report.targets import target_columns
from headtohead.storage.frames import load_frames
from headtohead.storage.paths import inside

FIGURES: dict[str, Callable[[Analysis], Figure | None]] = {
    "contrasts": forest_figure,
    "scores": strip_figure,
    "interactions": interaction_figure,
    "lengths": buckets_figure,
    "curves": curves_figure,
    "cost": cost_figure,
    "heads": heads_figure,
}

FIGURE_FORMATS: dict[str, Callable[[Figure], bytes]] = {"pdf": style.to_pdf, "png": style.to_png}
"""Formats of figures besides SVG."""

NARROW_FIGURES: dict[str, Callable[[Analysis], Figure | None]] = {
    "contrasts": partial(forest_figure, narrow=True),
    "scores": partial(strip_figure, narrow=True),
}
"""Figures that pages on phones show instead; other figures scroll."""


@dataclass(frozen=True)
class ReportPaths(os.PathLike[str]):
    """The files of a report, and its answer as text."""

    folder: Path
    html: Path
    markdown: Path
    csv: Path
    json: Path
    answer: str
    cautions: tuple[str, ...]

    def __fspath__(self) -> str:
        return str(self.html)

    def _repr_html_(self) -> str:
        """Return the answer and the main figures as notebook output."""
        blocks: list[Block] = [Paragraph(self.answer, "answer")]
        figures = {}
        for name in ("contrasts", "scores"):
            file = self.folder / "figures" / f"{name}.svg"
            if file.is_file():
                figures[name] = file.read_text(encoding="utf-8")
                blocks.append(NamedFigure(name, name))
        return html_blocks([*blocks, Paragraph(Span(str(self.html), "code"))], figures, inline=True)


def write_report(
    experiment_dir: Path,
    reports_root: Path,
    *,
    allow_partial: bool = False,
    source: str | None = None,
    file: Path | None = None,
    figure_formats: Sequence[str] = (),
) -> ReportPaths:
    """Write the report of an experiment to ``reports_root/<experiment>/``.

    Args:
        experiment_dir: The folder with ``experiment.json``.
        reports_root: The folder of all reports; an existing report of the experiment is replaced.
        allow_partial: Rank variants with missing seeds, with a warning at the top of the report.
        source: Origin of the run directories if it is not the runs folder.
        file: The experiment file, if it is known; default: the recorded file.
        figure_formats: Further formats of the figures besides SVG: keys of ``FIGURE_FORMATS``.

    Raises:
        HeadToHeadError: If a record cannot be read or a file cannot be written.
    """
    content = read_content(experiment_dir, allow_partial=allow_partial, source=source, file=file)
    return write_content(content, reports_root, figure_formats)


def read_content(
    experiment_dir: Path, *, allow_partial: bool = False, source: str | None = None, file: Path | None = None
) -> ReportContent:
    """Return the content of an experiment's report; arguments as for `write_report`."""
    return ReportContent(Analysis(load_frames(experiment_dir), allow_partial=allow_partial), source, file)


def write_content(content: ReportContent, reports_root: Path, figure_formats: Sequence[str] = ()) -> ReportPaths:
    """Write the files of a report to ``reports_root/<experiment>/``."""
    folder = inside(reports_root, content.analysis.frames.name, tree=True)
    with _writing_to(folder):
        (folder / "figures").mkdir(parents=True, exist_ok=True)
    figures = draw(content)
    blocks = report_blocks(content, tuple(figures))
    paths = ReportPaths(
        folder,
        folder / "index.html",
        folder / "report.md",
        folder / "results.csv",
        folder / "answer.json",
        content.answer,
        content.cautions,
    )
    with _writing_to(folder):
        remove(folder, {name for name in owned(folder) if Path(name).stem not in figures})
        claim(folder, (f"figures/{name}.{form}" for name in figures for form in ("svg", *figure_formats)))
        (folder / "figures").mkdir(exist_ok=True)
        for name, svg in figures.items():
            write_text(folder / "figures" / f"{name}.svg", svg)
        for form in figure_formats:
            for name, figure in _figures(content):
                file = FIGURE_FORMATS[form](figure)
                replace(folder / "figures" / f"{name}.{form}", lambda path, file=file: path.write_bytes(file))
        write_text(paths.csv, _table(content.analysis))
        write_text(paths.json, answer_file(content))
        write_text(paths.markdown, markdown_page(blocks))
        write_text(paths.html, page(content, blocks, figures | draw_narrow(content, figures)))
    return paths


def page(content: ReportContent, blocks: Sequence[Block], figures: Mapping[str, str]) -> str:
    """Return the report as a single HTML page."""
    record = content.record
    source = f" · from {content.source}" if content.source else ""
    title = f"{record.name}: {record.question}"
    return html_page(blocks, figures, title=title, kicker=f"headtohead · {record.name}{source}")


def _table(analysis: Analysis) -> str:
    """Return the runs, with the verdict on their variant, as CSV in which no text is a formula of a spreadsheet."""
    table = analysis.frames.runs.reset_index()
    verdicts: dict[str, str] = {contrast.left: contrast.verdict for contrast in analysis.variants.contrasts}
    verdicts[analysis.frames.baseline] = "baseline"
    table.insert(list(table).index("title") + 1, "verdict", [verdicts.get(slug, "") for slug in table["variant"]])
    for name, values in target_columns(analysis).items():
        table[name] = values
    for name in table.columns[[not is_numeric_dtype(dtype) for dtype in table.dtypes]]:
        table[name] = [spreadsheet_text(value) if isinstance(value, str) else value for value in table[name]]
    return str(table.rename(columns=spreadsheet_text).to_csv(index=False))


@contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    """Convert an error of the file system to one that names the folder."""
    try:
        yield
    except OSError as error:
        raise HeadToHeadError(
            f"the report cannot be written to {folder}: {error.strerror}; choose another folder with --reports"
        ) from error


def draw(content: ReportContent) -> dict[str, str]:
    """Return the figures as SVG by name, without figures that have no data."""
    return {name: style.to_svg(figure, salt=name) for name, figure in _figures(content)}


def _figures(content: ReportContent) -> Iterator[tuple[str, Figure]]:
    for name, function in FIGURES.items():
        figure = function(content.analysis)
        if figure is not None:
            yield name, figure
    if content.gallery is not None:
        yield "attention", attention_figure(content.gallery)


def draw_narrow(content: ReportContent, names: Iterable[str]) -> dict[str, str]:
    """Return the figures for phones of those that have one, as SVG by name with the suffix ``-narrow``."""
    drawn = {f"{name}-narrow": NARROW_FIGURES[name](content.analysis) for name in names if name in NARROW_FIGURES}
    return {name: style.to_svg(figure, salt=name) for name, figure in drawn.items() if figure is not None}
