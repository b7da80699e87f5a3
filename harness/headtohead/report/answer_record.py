"""``answer.json``: the answer of a report, its verdicts and the limits of what they show, as plain data."""

from __future__ import annotations

from typing import Any

from headtohead.analysis.contrasts import Contrast
from headtohead.analysis.study import main_contrasts
from headtohead.report.content import ReportContent
from headtohead.report.convergence import convergence_record, number
from headtohead.report.published import published_record
from headtohead.report.reference_points import reference_record

FORMAT = 1


def answer_record(content: ReportContent) -> dict[str, Any]:
    """Return the content of ``answer.json``: question, answer, cautions, main contrasts and training progress."""
    analysis = content.analysis
    return {
        "format": FORMAT,
        "experiment": content.record.name,
        "question": content.record.question,
        "metric": analysis.metric,
        "answer": content.answer,
        "cautions": content.cautions,
        "contrasts": [_contrast(contrast) for contrast in main_contrasts(analysis)],
        "training": convergence_record(analysis),
        "reference_points": reference_record(analysis),
        "published_claims": published_record(analysis),
    }


def _contrast(contrast: Contrast) -> dict[str, Any]:
    paired, interval = contrast.paired, contrast.judgement.interval
    return {
        "name": contrast.name,
        "kind": contrast.kind,
        "verdict": contrast.verdict,
        "reason": contrast.reason,
        "difference": None if paired is None else number(paired.mean),
        "interval_95": None if paired is None else [number(paired.low), number(paired.high)],
        "holm_interval": None
        if interval is None
        else {"level": interval.level, "low": number(interval.low), "high": number(interval.high)},
        "holm_p": number(contrast.judgement.holm_p),
        "seeds": list(contrast.seeds),
    }
