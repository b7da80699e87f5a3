"""All rules of a study, and its findings: a new rule is a function in a file beside this one and a line here."""

from __future__ import annotations

from headtohead.analysis.findings import data, design, runs, scores, training, verdicts
from headtohead.analysis.findings.finding import Finding, Rule
from headtohead.analysis.study import Analysis

RULES: tuple[Rule, ...] = (
    scores.no_score,
    scores.wide_margin,
    scores.collapsed_runs,
    scores.copied_runs,
    scores.above_upper_bound,
    data.leaky_test,
    data.leaky_validation,
    runs.changed_plugins,
    data.leaked_test,
    data.leaked_validation_examples,
    data.other_test_sentences,
    verdicts.no_room,
    verdicts.no_positive_control,
    design.tuned_at_the_edge,
    design.coarse_sweep,
    design.tuned_with_one_seed,
    design.tuned_at_another_length,
    scores.below_nearest_neighbour,
    scores.below_most_frequent_target,
    scores.below_bigram,
    training.other_steps,
    training.still_learning,
    training.schedule_ended_early,
    design.late_looks,
    design.pitfalls,
    design.equal_by_construction,
    runs.failed_runs,
    verdicts.arrows,
    verdicts.few_interactions,
    verdicts.paired_tests_differ,
    verdicts.stated_margin,
    design.stated_looks,
    training.schedule_ended,
    scores.spread,
    scores.larger_variance,
    scores.seed_effects_differ,
    runs.differing_software,
    runs.notes_of_runs,
    runs.damaged_histories,
)
"""The rules in the order of their findings: warnings, cautions, notes."""


def find(analysis: Analysis) -> tuple[Finding, ...]:
    """Return the findings of all rules in a study, the most severe first.

    Raises:
        HeadToHeadError: As `Analysis`.
    """
    findings: list[Finding] = []
    for rule in RULES:
        findings += rule.findings(analysis)
    return tuple(findings)
