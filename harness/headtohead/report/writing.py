"""Write a report: analyse the runs, draw the figures, and render the same sections in every format."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from pandas.api.types import is_numeric_dtype

from headtohead.analysis.scores import scores_of
from headtohead.analysis.study import Analysis
from headtohead.escaping import spreadsheet_text
from headtohead.figures import style
from headtohead.files import remove_leftovers, writing
from headtohead.ownership import names_in_manifest, remove, write
from headtohead.report.answer_file import answer_file
from headtohead.report.attention import attention_figure
from headtohead.report.content import Report
from headtohead.report.figures.heads import heads_figure
from headtohead.report.figures.interaction import interaction_figure
from headtohead.report.figures.lines import buckets_figure, curves_figure, sweep_figure
from headtohead.report.figures.rows import forest_figure, strip_figure
from headtohead.report.folder import (
    ADVICE,
    ANSWER,
    CHECKSUMS,
    MARKDOWN,
    PAGE,
    TABLE,
    checked_report_folder,
)
from headtohead.report.folder import FIGURES as FIGURES_FOLDER
from headtohead.report.render import fragment, markdown, page
from headtohead.report.section import Section, text_lines
from headtohead.report.sections import ReportSections, report_sections
from headtohead.storage.frames import load_frames
from headtohead_judge.contrast import Side

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: dict[str, Callable[[Analysis], Figure | None]] = {
    "contrasts": forest_figure,
    "scores": strip_figure,
    "interactions": interaction_figure,
    "lengths": buckets_figure,
    "curves": curves_figure,
    "sweep": sweep_figure,
    "heads": heads_figure,
}


@dataclass(frozen=True)
class ReportPaths(os.PathLike[str]):
    """The files of a report, the answer, the table of its differences and the remarks beside it."""

    folder: Path
    answer: str
    limits: str
    differences: Section = field(repr=False)
    cautions: tuple[str, ...] = field(repr=False)

    @property
    def lines(self) -> list[str]:
        """The answer, its limits, the differences with their caption and the remarks, as lines for the terminal."""
        caption = [self.differences.text] if self.differences.text else []
        limits = [self.limits] if self.limits else []
        return [
            self.answer,
            *limits,
            *text_lines(self.differences.frame, get_terminal_size().columns),
            *caption,
            *self.cautions,
        ]

    @property
    def html(self) -> Path:
        """The page."""
        return self.folder / PAGE

    @property
    def markdown(self) -> Path:
        """The report as Markdown."""
        return self.folder / MARKDOWN

    @property
    def csv(self) -> Path:
        """The table of the runs."""
        return self.folder / TABLE

    @property
    def json(self) -> Path:
        """The answer for programs."""
        return self.folder / ANSWER

    def __fspath__(self) -> str:
        return str(self.html)

    def _repr_html_(self) -> str:
        """Return the answer, its limits, the differences, the main figures and the path of the page as notebook output.

        Figures that are not in the folder are left out.
        """
        figures = {}
        sections = [Section("", self.limits), self.differences]
        for name in ("contrasts", "scores"):
            file = self.folder / FIGURES_FOLDER / f"{name}.svg"
            if file.is_file():
                figures[name] = file.read_text(encoding="utf-8")
                sections.append(Section("", figure=name))
        sections.append(Section("", str(self.html)))
        return fragment(*sections, figures=figures, answer=self.answer)


def write_report(
    experiment_dir: Path,
    reports_root: Path,
    *,
    allow_partial: bool = False,
    file: Path | None = None,
) -> ReportPaths:
    """Write the report of an experiment to ``reports_root/<experiment>/``, replacing an existing one.

    Args:
        experiment_dir: The folder with ``experiment.json``.
        reports_root: The folder of all reports.
        allow_partial: Rank variants with missing seeds, with a warning at the top of the report.
        file: The experiment file, if it is known; default: the recorded file.

    Raises:
        HeadToHeadError: If a file of the study cannot be read, a file cannot be written, or the folder has a symbolic
            link or a file of a report that headtohead did not write or that was changed since.
    """
    report = read_report(experiment_dir, allow_partial=allow_partial, file=file)
    return write_files(report, reports_root)


def read_report(
    experiment_dir: Path, *, allow_partial: bool = False, file: Path | None = None
) -> Report:
    """Return an experiment's report without writing it.

    The arguments are those of `write_report`. Some files of the study are read when the report is used.

    Raises:
        HeadToHeadError: If a record or a result of a run cannot be read.
    """
    return Report(Analysis(load_frames(experiment_dir), allow_partial=allow_partial), file)


def write_files(
    report: Report, reports_root: Path, figure_formats: Sequence[str] = ()
) -> ReportPaths:
    """Write the files of a report into its folder, and remove those of an earlier report that it no longer has.

    They are the page, the Markdown file, the answer, the table of runs, the figures, and the checksums of all but the
    page. A figure of an earlier report in another format stays while a figure of its name is drawn.

    Args:
        report: The report.
        reports_root: The folder of all reports.
        figure_formats: Formats of the figures beside SVG, of ``figures.style.FORMATS``.

    Raises:
        HeadToHeadError: If the folder has a file of a report that headtohead did not write, or that was changed since,
            or a symbolic link; or if a file of the study is damaged; then no file is written. Also if the folder cannot
            be written, for example on a full disk.
        KeyError: If a format is not one of ``figures.style.FORMATS``.
    """
    paths = _paths(report, reports_root)
    folder = paths.folder
    with writing(folder, "choose another folder with --reports"):
        folder.mkdir(parents=True, exist_ok=True)
    figures = draw(report)
    sections = report_sections(report, figures)
    by_figure = sections.by_figure
    svgs = {}
    for name, figure in figures.items():
        section = by_figure.get(name, Section(name))
        svgs[name] = style.to_svg(figure, name, title=section.figure_title, caption=section.caption)
    contents = {}
    for name, svg in svgs.items():
        contents[f"{FIGURES_FOLDER}/{name}.svg"] = svg.encode()
    for form in figure_formats:
        for name, figure in figures.items():
            contents[f"{FIGURES_FOLDER}/{name}.{form}"] = style.to_bytes(figure, form, name)
    contents |= _texts(report, sections, svgs)
    with writing(folder, "choose another folder with --reports"):
        remove_leftovers(folder)
        contents[CHECKSUMS] = checksums(contents).encode()
        write(folder, contents, ADVICE)
        # `write` adds to the manifest, so that it still lists the files of earlier reports.
        earlier = names_in_manifest(folder) - contents.keys()
        # A figure that is still drawn may have been asked for in another format.
        remove(folder, {name for name in earlier if Path(name).stem not in figures})
    return paths


def current_files(report: Report, reports_root: Path) -> ReportPaths | None:
    """Return the files of a report if its folder has them with the same texts; None if they must be written.

    The page and the Markdown file have every score, so that equal texts have equal figures, which take longer than the
    texts. Of files of a run that no text depends on, such as attention maps, a change is not found.

    Raises:
        HeadToHeadError: If the folder has a file of a report that headtohead did not write, or that was changed since,
            or a symbolic link; or if a file of the study is damaged.
    """
    paths = _paths(report, reports_root)
    try:
        svgs = {}
        for file in sorted((paths.folder / FIGURES_FOLDER).glob("*.svg")):
            svgs[file.stem] = file.read_bytes().decode()
        for name, text in _texts(report, report_sections(report, svgs), svgs).items():
            if (paths.folder / name).read_bytes() != text:
                return None
        if not (paths.folder / CHECKSUMS).is_file():
            return None
    except (OSError, UnicodeDecodeError):
        return None
    return paths


def _paths(report: Report, reports_root: Path) -> ReportPaths:
    """Return the files of a report.

    Raises:
        HeadToHeadError: If the folder has a file of a report that headtohead did not write, or that was changed since,
            or a symbolic link; or if a file of the study is damaged.
    """
    folder = checked_report_folder(reports_root, report.record.name)
    cautions = tuple(remark.text for remark in report.cautions)
    return ReportPaths(folder, report.answer, report.limits, report.differences, cautions)


def _texts(report: Report, sections: ReportSections, svgs: Mapping[str, str]) -> dict[str, bytes]:
    """Return the content of the files of a report with these figures, except the figures, by name."""
    return {
        TABLE: _table(report).encode(),
        ANSWER: answer_file(report).encode(),
        MARKDOWN: markdown(report, sections, svgs).encode(),
        PAGE: page(report, sections, svgs).encode(),
    }


def checksums(contents: Mapping[str, bytes]) -> str:
    """Return the text of ``SHA256SUMS`` of the files of a report, by which an edit of a generated file is found."""
    text = ""
    for name in sorted(contents.keys() - {CHECKSUMS, PAGE}):
        digest = hashlib.sha256(contents[name]).hexdigest()
        text += f"{digest}  {name}\n"
    return text


def draw(report: Report) -> dict[str, Figure]:
    """Return the figures by name, without figures that have no data.

    Raises:
        HeadToHeadError: If a file of the study is damaged, such as the attention maps of a run.
    """
    figures = {}
    for name, draw_figure in FIGURES.items():
        figure = draw_figure(report.analysis)
        if figure is not None:
            figures[name] = figure
    if report.gallery:
        figures["attention"] = attention_figure(report.gallery)
    return figures


def _table(report: Report) -> str:
    """Return the runs, with the tests of their variant, as CSV in which no text is a formula of a spreadsheet.

    The tests are those of the difference from the baseline: the verdict, its adjusted p, and the p-values of the
    paired t-test and of the sign-flip test, not adjusted. A variant without a contrast has none. Declared contrasts
    of some source lengths add a column of scores for each metric and range, such as ``test/bleu/1-5``; a run without
    such a score has an empty cell.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    table = report.analysis.frames.runs.reset_index()
    verdicts = table["variant"].map(report.verdicts).fillna("")
    after_title = list(table).index("title") + 1
    table.insert(after_title, "verdict", verdicts)
    for offset, (test, by_slug) in enumerate(_p_values(report.analysis).items(), start=1):
        table.insert(after_title + offset, test, table["variant"].map(by_slug).astype(float))
    for side in _limited_sides(report.analysis):
        shortest, longest = side.lengths or (0, 0)
        scores = []
        for variant, seed in zip(table["variant"], table["seed"], strict=True):
            side_of_variant = side._replace(variant=str(variant))
            by_seed = scores_of(report.analysis.frames, side_of_variant)
            scores.append(by_seed.get(int(seed), math.nan))
        table[f"{side.metric}/{shortest}-{longest}"] = scores
    for name, dtype in table.dtypes.items():
        if not is_numeric_dtype(dtype):
            table[name] = [_spreadsheet_cell(value) for value in table[name]]
    return str(table.rename(columns=spreadsheet_text).to_csv(index=False))


def _p_values(analysis: Analysis) -> dict[str, dict[str, float]]:
    """Return the p-values of the differences from the baseline by name and variant, without contrasts without a test.

    Only ``p`` is adjusted.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    p_values: dict[str, dict[str, float]] = {"p": {}, "paired_p": {}, "sign_flip_p": {}}
    for contrast in analysis.families.variants.contrasts:
        if contrast.paired is not None:
            p_values["p"][contrast.variant] = contrast.judgement.adjusted_p
            p_values["paired_p"][contrast.variant] = contrast.paired.paired_p
            p_values["sign_flip_p"][contrast.variant] = contrast.paired.sign_flip_p
    return p_values


def _limited_sides(analysis: Analysis) -> list[Side]:
    """Return the metrics and the source lengths of declared contrasts that count only some source lengths.

    Each is a side with an empty slug, and occurs once.
    """
    limited: list[Side] = []
    for contrast in analysis.families.declared.contrasts:
        for side in contrast.contrast.sides:
            anonymous = side._replace(variant="")
            if side.lengths and anonymous not in limited:
                limited.append(anonymous)
    return limited


def _spreadsheet_cell(value: Any) -> Any:
    """Return a text so that no spreadsheet computes it as a formula; other values are unchanged."""
    return spreadsheet_text(value) if isinstance(value, str) else value
