"""The answer of a report as the object that trackers get."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.sentences import sentence
from headtohead.plugins.logger import Answer, AnsweredContrast
from headtohead.report.content import Report
from headtohead.report.differences import differences
from headtohead.report.folder import ANSWER, FIGURES, MARKDOWN, PAGE, TABLE
from headtohead.report.setup import setup_line
from headtohead.storage.paths import checked_path

ATTACHED = (PAGE, MARKDOWN, ANSWER, TABLE)
"""Files of a report that trackers attach, beside its figures."""


def tracked_answer(report: Report, reports_root: Path) -> Answer:
    """Return the answer of a report, with its files if it has been written.

    Only ranked variants with a finite mean have a score.

    Args:
        report: The report.
        reports_root: The folder of all reports.

    Raises:
        HeadToHeadError: If the folder of the report is or contains a symbolic link, or a file of the study is damaged,
            such as the stored values per example of a run.
    """
    analysis = report.analysis
    scores = {}
    for slug in analysis.ranked:
        mean = analysis.summaries[slug].mean
        if math.isfinite(mean):
            scores[slug] = mean
    cautions = [(remark.severity, remark.text) for remark in report.cautions]
    contrasts = [_contrast(report, contrast) for contrast in analysis.main_contrasts]
    return Answer(
        text=report.answer,
        limits=report.limits,
        rows=differences(analysis),
        cautions=cautions,
        setup=setup_line(analysis),
        scores=scores,
        contrasts=contrasts,
        verdicts=report.verdicts,
        report=report_files(reports_root, report.record.name),
    )


def report_files(reports_root: Path, name: str) -> Mapping[str, Path]:
    """Return the files of a written report that trackers attach, figures last, by their name in its folder.

    Files that do not exist are left out; empty without a report.

    Raises:
        HeadToHeadError: If the folder is or contains a symbolic link, or ``name`` leads out of ``reports_root``.
    """
    folder = checked_path(reports_root, name, tree=True)
    paths = [folder / attached for attached in ATTACHED]
    paths += sorted(folder.glob(f"{FIGURES}/*"))
    files = {}
    for path in paths:
        if path.is_file():
            files[path.relative_to(folder).as_posix()] = path
    return files


def _contrast(report: Report, contrast: ContrastResult) -> AnsweredContrast:
    """Return a contrast for a tracker; numbers that are missing or not finite are None."""
    difference = None
    if contrast.paired:
        difference = _finite(contrast.paired.mean)
    ends = None
    interval = contrast.judgement.interval
    if interval is not None and math.isfinite(interval.low):
        ends = (interval.low, interval.high)
    return AnsweredContrast(
        label=contrast.name,
        sentence=sentence(report.analysis, contrast),
        direction=contrast.direction,
        verdict=contrast.verdict,
        metric=contrast.metric,
        difference=difference,
        interval=ends,
        adjusted_p=_finite(contrast.judgement.adjusted_p),
        seeds=len(contrast.seeds),
    )


def _finite(value: float | None) -> float | None:
    """Return a number, or None for None and for a number that is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return value
