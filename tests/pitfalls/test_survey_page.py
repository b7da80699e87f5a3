"""The Markdown page of ``h2h check --all``."""

from __future__ import annotations

from collections import Counter

from headtohead.plugins.registry import current
from headtohead.testing.check.examination import InvariantResult
from headtohead.testing.check.survey import Survey, survey_page


def test_the_page_has_every_invariant_and_every_pair() -> None:
    survey = Survey(combinations=3)
    survey.outcomes["split-heads", "rotary"] = Counter({"holds": 3})
    survey.invariants["causality"] = Counter({"holds": 3})
    survey.known_violations["causality", "attention.decoder: embedding-softmax"] = 2
    survey.incompatible["linear", "alibi"] = "linear attention has no scores"
    page = survey_page(survey, current())
    assert "**No unexpected violations.**" in page
    assert "| `causality` | Changing a target token changes no logits before it. | 3 | 0 | 0 | 0 |" in page
    assert "| `causality` | attention.decoder: embedding-softmax | 2 |" in page
    assert "| linear | alibi | linear attention has no scores |" in page
    (row,) = [line for line in page.splitlines() if line.startswith("| split-heads |")]
    assert "| 3 |" in row


def test_the_page_lists_unexpected_violations_with_the_smallest_example() -> None:
    survey = Survey()
    survey.outcomes["split-heads", "rotary"] = Counter({"violated": 1})
    result = InvariantResult("causality", "", "violated", 0.5, "change of logits", example="token 1 | logit 2")
    survey.violations.append(("split-heads \u00b7 rotary", result))
    page = survey_page(survey, current())
    assert "**1 unexpected violations**" in page
    assert "| split-heads \u00b7 rotary | `causality` | token 1 \\| logit 2 |" in page
    assert "**1 of 1 violated**" in page
