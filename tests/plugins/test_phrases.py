"""Phrases: every entry and field has one, and it reads well in every template."""

import re
from itertools import permutations

import pytest

from headtohead.config.clauses import (
    as_noun,
    change_clause,
    has_preposition,
    joined_clause,
    lead,
    within,
)
from headtohead.config.phrases import axis_name, field_phrase, mark_of, named_phrase, option_phrase
from headtohead.plugins.entry_checks import require_valid_phrase
from headtohead.plugins.families import FAMILIES
from headtohead.plugins.positional import Positional
from headtohead.plugins.registry import current
from headtohead.schema.run_config import SECTIONS
from headtohead.schema.sections import Options

UNREADABLE = re.compile(r"[=→(_]|true|false|null|  ")
MAX_PHRASE = 40

ENTRIES = [
    (entry.family, entry.name)
    for entry in current().all()
    if FAMILIES[entry.family].affects_results or entry.family == "recipe"
]
FIELDS = [
    (section, name, info)
    for section, model in SECTIONS.items()
    for name, info in model.model_fields.items()
    if mark_of(info)
]


@pytest.mark.parametrize(("family", "name"), ENTRIES)
def test_every_entry_has_a_short_readable_phrase_of_its_own(family: str, name: str) -> None:
    assert current().find(family, name).entry.phrase
    phrase = named_phrase(family, name, {})
    assert 0 < len(phrase) <= MAX_PHRASE
    assert not UNREADABLE.search(phrase)
    others = [named_phrase(*entry, {}) for entry in ENTRIES if entry[0] == family]
    assert others.count(phrase) == 1


@pytest.mark.parametrize(("section", "name", "info"), FIELDS)
def test_every_marked_field_has_readable_phrases(section: str, name: str, info: object) -> None:
    default = info.get_default(call_default_factory=True)
    values = {default, *mark_of(info).named} - {"null", "1", "0", "torch"}
    values |= {True, False} if isinstance(default, bool) else set()
    phrases = [field_phrase(name, info, value) for value in values]
    assert len(set(phrases)) == len(values)
    for phrase in phrases:
        assert 0 < len(phrase) <= MAX_PHRASE
        assert not UNREADABLE.search(phrase.replace("−1e9", ""))
    assert not UNREADABLE.search(axis_name((section, name)))


@pytest.mark.parametrize("family", ["positional", "attention", "feed_forward", "norm", "masking"])
def test_the_change_between_any_two_entries_is_a_clause_that_names_both_once(family: str) -> None:
    phrases = [named_phrase(*entry, {}) for entry in ENTRIES if entry[0] == family]
    for value, against in permutations(phrases, 2):
        clause = change_clause(value, against)
        assert clause.count("instead of") <= 1
        assert not re.search(r"instead of (and|or)\b", clause)
        assert has_preposition(clause) == has_preposition(value)
        assert lead(clause).startswith(("With ", "Without "))
        assert not re.search(r"\b(with|without|instead of) (with|without)\b", lead(clause))
        if "instead of" not in clause:
            assert clause == value
            continue
        first, second = as_noun(clause).split(" instead of ")
        # What is left out of one side is a beginning or an end of the other.
        assert as_noun(value).startswith(first)
        rest = as_noun(value).removeprefix(first).strip()
        assert second.endswith(rest)
        assert as_noun(against).endswith(second)
        assert first.split()[-1] not in ("a", "an", "the")


@pytest.mark.parametrize(
    ("option", "value", "phrase", "alone"),
    [
        (
            ("positional", "rotary", "fraction"),
            0.125,
            "rotary with 12.5 % of the components rotated",
            "with 12.5 % of the components rotated",
        ),
        (("positional", "randomised", "of"), "rotary", "randomised rotary", "randomised rotary"),
        (
            ("attention", "gated", "per"),
            "head",
            "with a gated output per head",
            "with a gated output per head",
        ),
        (
            ("attention", "gated", "kv_heads"),
            2,
            "with a gated output and 2 key-value heads",
            "2 key-value heads",
        ),
        (
            ("attention", "combined", "first"),
            "value-residual",
            "combined styles with value residual",
            "with value residual",
        ),
        (
            ("attention", "value-residual", "trained"),
            False,
            "with value residual and fixed weights",
            "with fixed weights",
        ),
        (
            ("dataset", "addition", "digit_order"),
            "reversed",
            "addition with a reversed digit order",
            "with a reversed digit order",
        ),
    ],
)
def test_options_are_slots(
    option: tuple[str, str, str], value: object, phrase: str, alone: str
) -> None:
    family, name, field = option
    assert named_phrase(family, name, {field: value}) == phrase
    assert option_phrase(family, name, field, value) == alone


def test_several_changes_are_one_clause_with_a_preposition_if_one_has_it() -> None:
    clauses = ["without biases", "rotary instead of sinusoidal", "SwiGLU instead of GELU"]
    assert joined_clause(clauses) == (
        "without biases, with rotary instead of sinusoidal, and with SwiGLU instead of GELU"
    )
    assert within("SwiGLU instead of GELU", "2 heads") == "SwiGLU instead of GELU with 2 heads"
    assert within("without biases", "2 heads") == "without biases (2 heads)"


@pytest.mark.parametrize("phrase", ["of {width}", "{of", 3])
def test_a_phrase_with_an_unknown_slot_or_an_invalid_template_is_refused(phrase: object) -> None:
    entry = type("Near", (Positional,), {"phrase": phrase, "Options": Options})
    with pytest.raises(TypeError, match="phrase is "):
        require_valid_phrase(entry)
