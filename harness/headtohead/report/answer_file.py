"""``answer.json``: the answer, the set-up and the tests of a report for programs."""

from __future__ import annotations

from typing import Any

from headtohead.analysis.contrasts import Contrast
from headtohead.escaping import json_text
from headtohead.report.content import ReportContent
from headtohead.report.convergence import convergence_record
from headtohead.report.json_values import interval_record, number
from headtohead.report.looks import looks_record
from headtohead.report.reference_points import reference_record
from headtohead.report.setup import setup_line
from headtohead.report.targets import target_record
from headtohead.statistics.paired_tests import CONFIDENCE, interval

FORMAT = "headtohead-answer/1"
"""Name and version of the format."""


def answer_file(content: ReportContent) -> str:
    """Return the text of ``answer.json``."""
    analysis, record = content.analysis, content.record
    margin = record.margins.get(analysis.metric)
    answer = {
        "format": FORMAT,
        "experiment": record.name,
        "question": record.question,
        "answer": content.answer,
        "stale": list(content.stale),
        "cautions": list(content.cautions),
        "setup": setup_line(analysis),
        "facts": content.facts,
        "metric": analysis.metric,
        "margin": None if margin is None else margin.value,
        "looks": looks_record(analysis),
        "incomplete": dict(analysis.incomplete),
        "scores": {slug: number(analysis.summaries[slug].mean) for slug in analysis.ranked},
        "contrasts": [
            _contrast(name, contrast)
            for name, family in analysis.families._asdict().items()
            for contrast in family.contrasts
        ],
        "targets": target_record(analysis),
        "training": convergence_record(analysis),
        "reference_points": reference_record(analysis),
    }
    return json_text(answer, indent=2) + "\n"


def _contrast(family: str, contrast: Contrast) -> dict[str, Any]:
    difference, judgement = contrast.difference, contrast.judgement
    return {
        "family": family,
        "name": contrast.name,
        "verdict": contrast.verdict_name,
        "reason": contrast.reason,
        "difference": difference and number(difference.mean),
        "interval": difference and interval_record(interval(difference, CONFIDENCE)),
        "holm_interval": interval_record(judgement.interval),
        "holm_p": number(judgement.holm_p),
        "seeds": list(contrast.seeds),
        "metric": contrast.metric,
        "expected": contrast.expected or None,
        "agreement": contrast.agreement and contrast.agreement.verdict,
    }
