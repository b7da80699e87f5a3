"""The answer of ``h2h judge`` as JSON data, for programs; docs/reference/answer-file.md describes the fields.

Fields may be added without a new version. A field that is removed, renamed or changes its meaning increments the
version in ``format``. Numbers that are not finite are null; an infinite number of steps is the text ``inf``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headtohead_judge.judging import Judged
    from headtohead_judge.paired_tests import Difference, Interval, Summary
    from headtohead_judge.verdicts import Judgement

FORMAT = "headtohead-judge"


def is_answer(content: bytes) -> bool:
    """Return whether a file is an answer of ``h2h judge``, of any version."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(answer, dict) and str(answer.get("format")).startswith(f"{FORMAT}/")


def answer_of(judged: Judged, exit_code: int) -> dict[str, Any]:
    """Return the judgement of a table of scores as JSON data."""
    contrasts = []
    for variant in judged.variants:
        contrast = {
            "variant": variant.variant,
            **summary_fields(variant.summary),
            **test_fields(variant.difference, variant.judgement),
        }
        contrasts.append(plain(contrast))
    return {
        "format": f"{FORMAT}/3",
        "metric": judged.metric,
        "higher_is_better": judged.higher_is_better,
        "margin": judged.margin,
        "paired": judged.is_paired,
        "baseline": plain({"variant": judged.baseline, **summary_fields(judged.summary)}),
        "contrasts": contrasts,
        "looks": judged.looks and list(judged.looks.seeds),
        "more_seeds": judged.more_seeds,
        "warnings": list(judged.warnings),
        "exit_code": exit_code,
    }


def test_fields(difference: Difference | None, judgement: Judgement) -> dict[str, Any]:
    """Return verdict, interval, sources of variance and p-values of a contrast; those of a missing difference are None.

    ``sensitivity`` has the p-values of other tests, on which no verdict rests.
    """
    return {
        "verdict": judgement.verdict,
        "direction": judgement.direction,
        "size": judgement.size,
        "difference": difference and difference.mean,
        "interval": interval_fields(judgement.interval),
        "largest_possible": judgement.largest_possible,
        "p": difference and difference.p,
        "adjusted_p": judgement.adjusted_p,
        "sources": difference and [vars(source) for source in difference.sources],
        "sensitivity": {
            "paired_p": difference and difference.paired_p,
            "sign_flip_p": difference and difference.sign_flip_p,
        },
    }


def summary_fields(summary: Summary) -> dict[str, Any]:
    """Return number of seeds, mean and standard deviation."""
    return {"seeds": summary.n, "mean": summary.mean, "standard_deviation": summary.sd}


def interval_fields(interval: Interval | None) -> dict[str, float] | None:
    """Return the ends of an interval; None without finite ends."""
    if interval is None or not math.isfinite(interval.low):
        return None
    return vars(interval)


def plain(value: Any) -> Any:
    """Return JSON data: NaN as None, infinity as the text ``inf``."""
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    return value
