"""Every invariant under options other than the defaults, and in every role."""

import pytest

from headtohead.testing import Subject, check, tiny_config
from headtohead.testing.invariants.trained_stacks import a_resumed_training_equals_an_uninterrupted_one
from made import unexpected


def everywhere(name, **options):
    return {role: {"name": name, **options} for role in ("encoder", "decoder", "cross")}


def both(name, **options):
    return {"name": name, **options}


def fire(encoder, **options):
    return {"encoder": encoder, "decoder": {"name": "fire", **options}}


SAMPLED = {"encoder": "shape", "decoder": both("randomised", of="alibi")}
CHOICES = {
    "t5-relative with other buckets": both("t5-relative", buckets=24, max_distance=20),
    "shaw-relative on keys, by head": everywhere("shaw-relative", on="keys", heads="own", clip=5),
    "shaw-relative on values, by head": everywhere("shaw-relative", on="values", heads="own"),
    "kerple-log in every role, by layer": everywhere("kerple-log", layers="own"),
    "fire, with more units": fire("none", hidden=50, threshold=2.0),
    "sandwich in every role": everywhere("sandwich", width=16),
    "shape with little room": both("shape", max_shift=1),
    "randomised rotary": both("randomised", of="rotary", numbers=300),
    "drawn against fixed": SAMPLED,
}


@pytest.mark.slow
@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES.keys())
def test_no_choice_has_an_unexpected_violation(choice):
    assert unexpected(check(tiny_config(choice))) == {}


def test_a_resumed_training_continues_with_the_same_samples():
    assert a_resumed_training_equals_an_uninterrupted_one(Subject(tiny_config(SAMPLED))).state == "holds"
