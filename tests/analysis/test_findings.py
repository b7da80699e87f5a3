"""The rules of a study: a named function each, the most severe first."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headtohead.analysis.findings.rules import RULES
from headtohead.analysis.study import Analysis
from headtohead.errors import HeadToHeadError
from headtohead.report.card import card
from headtohead.report.content import Report


def test_rules_have_different_names_and_say_when_they_apply() -> None:
    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names))
    assert all(rule.check.__doc__ for rule in RULES)


def test_warnings_precede_cautions_and_cautions_precede_notes() -> None:
    order = ["warning", "caution", "note"]
    severities = [rule.severity for rule in RULES]
    assert severities == sorted(severities, key=order.index)


def test_without_a_ranked_variant_the_baseline_has_no_pooled_deviation(
    analysed: Callable[..., Analysis],
) -> None:
    states = {(variant, 1): "PLANNED" for variant in ("sinusoidal", "rotary")}
    analysis = analysed(axes={"positional": ["sinusoidal", "rotary"]}, states=states)
    assert analysis.ranked == ()
    (rule,) = [rule for rule in RULES if rule.name == "spread"]
    (sentence,) = rule.check(analysis)
    assert "standard deviation" in sentence.text
    assert "pooled" not in sentence.text


def test_a_baseline_that_is_not_trained_has_no_share_of_flops(
    analysed: Callable[..., Analysis],
) -> None:
    analysis = analysed(axes={"positional": ["sinusoidal", "rotary"]})
    vars(analysis.frames.by_slug["sinusoidal"])["steps"] = 0
    (rule,) = [rule for rule in RULES if rule.name == "other_steps"]
    (sentence,) = rule.check(analysis)
    assert "(0 steps" in sentence.text
    assert "rotary, 10 steps" in sentence.text
    assert "FLOPs" not in sentence.text


def test_the_pooled_deviation_names_ranked_variants_if_there_are_others(
    analysed: Callable[..., Analysis],
) -> None:
    axes = {"positional": ["sinusoidal", "rotary", "none"]}
    analysis = analysed(axes=axes, states={("none", 1): "PLANNED"})
    assert set(analysis.ranked) == {"sinusoidal", "rotary"}
    (rule,) = [rule for rule in RULES if rule.name == "spread"]
    (sentence,) = rule.check(analysis)
    assert "pooled over the ranked variants, it is" in sentence.text


def test_other_steps_than_the_baselines_are_stated_with_their_flops_and_seconds(
    analysed: Callable[..., Analysis],
) -> None:
    analysis = analysed(axes={"positional": ["sinusoidal", "rotary", "none"]})
    (rule,) = [rule for rule in RULES if rule.name == "other_steps"]
    assert list(rule.check(analysis)) == []
    frames = analysis.frames
    vars(frames.by_slug["rotary"])["steps"] = 5
    seconds = frames.runs["variant"].map({"rotary": 20.0}).fillna(16.0)
    runs = frames.runs.assign(**{"system/train_seconds": seconds})
    (sentence,) = rule.check(Analysis(replace(frames, runs=runs)))
    assert sentence.text == (
        "Trained for other numbers of steps than the baseline (10 steps, 16 s): rotary, 5 steps, 50 % of its FLOPs, "
        "20 s, 125 % of its seconds."
    )
    assert sentence.variants == ("rotary",)


def test_a_baseline_without_the_effects_of_the_seeds_is_stated(
    analysed: Callable[..., Analysis],
) -> None:
    values = ["sinusoidal", "rotary", "none", "alibi", "t5-relative", "kerple-log"]
    noise = np.random.default_rng(1).normal(0, 0.002, size=(6, 7))
    shared = np.random.default_rng(2).normal(0, 0.02, size=7)
    (rule,) = [rule for rule in RULES if rule.name == "seed_effects_differ"]
    found = []
    for has_effects in (True, False):

        def score(axes: Any, seed: int, has_effects: bool = has_effects) -> float:
            row = values.index(axes["positional"])
            effect = shared[seed] if row or has_effects else 0.0
            return 0.5011 + float(effect + noise[row, seed])

        analysis = analysed(
            axes={"positional": values}, score=score, one_at_a_time=True, name=f"s{has_effects}"
        )
        found.append([sentence.text for sentence in rule.check(analysis)])
    assert found[0] == []
    (text,) = found[1]
    assert text.startswith("A seed has not the same effect on all variants: the variance of the")


def test_a_card_of_other_axes_is_refused(analysed: Callable[..., Analysis]) -> None:
    with pytest.raises(HeadToHeadError, match="exactly two axes"):
        card(Report(analysed(axes={"positional": ["sinusoidal", "rotary"]})), "")


def test_a_question_that_was_changed_after_results_is_a_caution_and_limits_the_answer(
    analysed: Callable[..., Analysis],
) -> None:
    analysis = analysed(axes={"positional": ["sinusoidal", "rotary"]})
    (rule,) = [rule for rule in RULES if rule.name == "late_fields"]
    assert list(rule.check(analysis)) == []
    changed = {"seeds": "2026-01-05T10:00:00Z", "contrasts": "2026-01-06T10:00:00Z"}
    vars(analysis.frames.record)["late_fields"] = changed
    (sentence,) = rule.check(analysis)
    assert ": seeds (2026-01-05) and contrasts (2026-01-06). " in sentence.text
    assert sentence.limit == "seeds and contrasts chosen after results existed"
