"""Where each invariant applies, and what a verdict says where it does not."""

import math

import pytest

from headtohead.plugins.registry import current
from headtohead.testing import INVARIANTS, Subject, check, tiny_config
from headtohead.testing.verdict import beyond, outside, within, worst

INVARIANT = {one.name: one for one in INVARIANTS}
HIDDEN_PADDING = {"pad-columns", "pad-content", "batch-of-one"}
CAUSAL = {"causality", "cached-decoding"}

NO_DRAWS = {"drawn-positions"}
NOT_APPLYING = {
    ("sinusoidal", "padding-causal"): NO_DRAWS | {"falls-with-distance", "joint-shift"},
    ("rotary", "padding-causal"): NO_DRAWS | {"falls-with-distance"},
    ("alibi", "padding-causal"): NO_DRAWS | {"limit"},
    ("alibi", "causal"): NO_DRAWS | HIDDEN_PADDING | {"limit", "source-mirror"},
    ("none", "padding"): NO_DRAWS | CAUSAL | {"falls-with-distance", "limit"},
    ("learned", "none"): NO_DRAWS | CAUSAL | HIDDEN_PADDING | {"falls-with-distance", "joint-shift"},
    ("shape", "window"): {"falls-with-distance", "joint-shift"},
    ("t5-relative", "prefix"): NO_DRAWS | CAUSAL | {"falls-with-distance", "limit"},
}


DEFAULT = (("alibi", "causal"), ("learned", "none"), ("shape", "window"))


@pytest.mark.parametrize(
    "names",
    [names if names in DEFAULT else pytest.param(names, marks=pytest.mark.slow) for names in NOT_APPLYING],
    ids="/".join,
)
def test_invariants_apply_where_their_domain_says_and_hold_there(names):
    positional, masking = names
    verdicts = check(tiny_config(positional, masking=masking))
    assert set(verdicts) == {one.name for one in INVARIANTS}
    found = {name for name, one in verdicts.items() if one.state == "does not apply"}
    assert found == NOT_APPLYING[names]
    assert all(one.state == "holds" for name, one in verdicts.items() if name not in found)


def test_outside_its_domain_an_invariant_shows_the_predicted_failure():
    verdict = check(tiny_config(masking="none"))["causality"]
    assert verdict.state == "does not apply"
    assert verdict.number > 1e-3
    assert str(verdict).startswith(
        "does not apply: the decoder's mask does not hide the future; "
        "as predicted, later tokens change earlier logits ["
    )


@pytest.mark.parametrize("chosen", [{"positional": "learned"}, {"attention": "random"}])
@pytest.mark.parametrize(
    ("beside", "said"), [(1, "refuses place {}, which is within its limit"), (-1, "computes place {}, which is beyond")]
)
def test_a_limit_is_neither_too_far_nor_too_near(monkeypatch, chosen, beside, said):
    """A call that raises for another reason is no refusal: the last place within has to work."""
    registry = current()
    entry = {"positional": registry.positional("learned"), "attention": registry.attention("random")}[
        next(iter(chosen))
    ]
    true = entry.limit(entry.Options())
    monkeypatch.setattr(entry, "limit", classmethod(lambda cls, options: true + beside))
    verdict = INVARIANT["limit"](Subject(tiny_config(**chosen)))
    assert verdict.state == "broken"
    assert said.format(true if beside > 0 else true - 1) in verdict.shown


def test_failure_that_was_predicted_and_does_not_come_breaks_the_invariant():
    assert outside("it is wide", 1e-3, "it leaks").state == "does not apply"
    missing = outside("it is wide", 0.0, "it leaks")
    assert missing.shown == "it is wide, yet it does not happen that it leaks"
    assert str(missing) == "broken: it is wide, yet it does not happen that it leaks [0]"


def test_not_a_number_breaks_every_invariant():
    for judge in (within, beyond):
        assert judge(math.nan, "x").state == "broken"
    assert outside("x", math.nan, "y").state == "broken"


def test_worst_of_several_verdicts_is_the_broken_one():
    holds, known_violations = within(0.0, "fine"), within(1.0, "off")
    aside = outside("x", 1.0, "y")
    assert worst(holds, known_violations, aside) is known_violations
    assert worst(aside, holds) is holds
    assert worst(aside, aside) is aside


def test_every_invariant_has_a_name_of_its_own_and_a_promise():
    assert len({one.name for one in INVARIANTS}) == len(INVARIANTS)
    for one in INVARIANTS:
        assert one.promise.endswith(".")
        assert one.name == one.name.lower().replace(" ", "-").replace("_", "-")
