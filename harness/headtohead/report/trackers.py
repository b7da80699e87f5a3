"""The answer of a report as the object that trackers get."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.wording import contrast_name, named_sides
from headtohead.plugins.logger import Answer, AnsweredContrast
from headtohead.report.content import Report
from headtohead.report.differences import differences
from headtohead.report.folder import ANSWER, FIGURES, MARKDOWN, PAGE, TABLE
from headtohead.report.setup import setup_line
from headtohead.storage.paths import inside

ATTACHED = (PAGE, MARKDOWN, ANSWER, TABLE)
"""Files of a report that trackers attach, beside its figures."""


def tracked_answer(report: Report, reports_root: Path) -> Answer:
    """Return the answer of a report, with its files if it has been written.

    Args:
        report: The report.
        reports_root: The folder of all reports.

    Raises:
        HeadToHeadError: If the folder of the report is or contains a symbolic link.
    """
    analysis = report.analysis
    scores = {}
    for slug in analysis.ranked:
        mean = analysis.summaries[slug].mean
        if math.isfinite(mean):
            scores[slug] = mean
    return Answer(
        text=report.answer,
        rows=differences(analysis),
        cautions=[(remark.severity, remark.text) for remark in report.cautions],
        setup=setup_line(analysis),
        scores=scores,
        contrasts=[_contrast(report, contrast) for contrast in analysis.main_contrasts],
        verdicts=report.verdicts,
        report=report_files(reports_root, report.record.name),
    )


def report_files(reports_root: Path, name: str) -> Mapping[str, Path]:
    """Return the files of a written report by their name in its folder; those that do not exist are left out.

    Raises:
        HeadToHeadError: If the folder is or contains a symbolic link.
    """
    folder = inside(reports_root, name, tree=True)
    paths = [folder / attached for attached in ATTACHED]
    paths += sorted(folder.glob(f"{FIGURES}/*"))
    files = {}
    for path in paths:
        if path.is_file():
            files[path.relative_to(folder).as_posix()] = path
    return files


def _contrast(report: Report, contrast: ContrastResult) -> AnsweredContrast:
    """Return a contrast for a tracker; numbers that are missing or not finite are None."""
    left, _ = named_sides(report.analysis, contrast)
    interval = contrast.judgement.interval
    has_interval = interval is not None and math.isfinite(interval.low)
    return AnsweredContrast(
        label=contrast_name(report.analysis, contrast),
        left=left,
        direction=contrast.direction,
        verdict=contrast.verdict,
        difference=_finite(contrast.paired.mean if contrast.paired else None),
        interval=(interval.low, interval.high) if interval and has_interval else None,
        adjusted_p=_finite(contrast.judgement.adjusted_p),
        seeds=len(contrast.seeds),
    )


def _finite(value: float | None) -> float | None:
    """Return a number, or None if it is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return value
