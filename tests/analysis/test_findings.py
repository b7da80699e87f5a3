"""The rules of a study: a named function each, the most severe first."""

from headtohead.analysis.findings.rules import RULES


def test_rules_have_different_names_and_say_when_they_apply() -> None:
    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names))
    assert all(rule.check.__doc__ for rule in RULES)


def test_warnings_precede_cautions_and_cautions_precede_notes() -> None:
    order = ["warning", "caution", "note"]
    severities = [rule.severity for rule in RULES]
    assert severities == sorted(severities, key=order.index)
