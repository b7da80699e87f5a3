"""All rules of a study, and its findings: a new rule is a function in a file beside this one and a line here."""

from __future__ import annotations

from collections.abc import Sequence

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
    verdicts.low_scores,
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
    design.late_fields,
    design.pitfalls,
    design.equal_by_construction,
    runs.failed_runs,
    verdicts.few_interactions,
    verdicts.paired_tests_differ,
    verdicts.stated_margin,
    verdicts.detectable,
    design.stated_looks,
    training.schedule_ended,
    scores.spread,
    scores.seed_effects_differ,
    runs.differing_software,
    runs.notes_of_runs,
    runs.damaged_histories,
    data.one_data_set,
)
"""The rules in the order of their findings: warnings, cautions, notes."""

LIMITING: tuple[Rule, ...] = (
    scores.no_score,
    scores.copied_runs,
    runs.changed_plugins,
    scores.above_upper_bound,
    data.leaky_test,
    data.leaky_validation,
    scores.wide_margin,
    verdicts.no_room,
    verdicts.low_scores,
    verdicts.no_positive_control,
    scores.below_bigram,
    scores.below_most_frequent_target,
    scores.below_nearest_neighbour,
    scores.collapsed_runs,
    training.still_learning,
    training.schedule_ended_early,
    training.other_steps,
    design.tuned_at_another_length,
    design.tuned_at_the_edge,
    design.tuned_with_one_seed,
    design.coarse_sweep,
    design.late_looks,
    design.late_fields,
    data.other_test_sentences,
    data.one_data_set,
)
"""The rules whose findings limit the answer, the most important first: wrong results, tests without force, models that
learned too little, settings chosen too coarsely, and the reach of the data."""

MAX_LIMITS = 2
"""Maximum number of limits beside the answer; all findings are below it."""


def find(analysis: Analysis) -> tuple[Finding, ...]:
    """Return the findings of all rules in a study, the most severe first.

    Raises:
        HeadToHeadError: If a file of the study is damaged: the values per example or the saved translations of a run,
            or the reference points.
    """
    findings: list[Finding] = []
    for rule in RULES:
        findings += rule.findings(analysis)
    return tuple(findings)


def limits(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Return what limits the answer: the clauses of the first findings in the order of `LIMITING`."""
    clauses: dict[str, None] = {}
    for rule in LIMITING:
        for finding in findings:
            if finding.rule == rule.name and finding.limit:
                clauses[finding.limit] = None
    return tuple(clauses)[:MAX_LIMITS]
