"""Variants that are special cases of other variants compute the same from the same weights."""

from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from made.equality import same_function


def test_in_evaluation_shape_is_sinusoidal():
    shape = tiny_config("shape")
    buffers = Subject(shape).model.state_dict()
    assert same_function(tiny_config("sinusoidal"), shape, lambda weights: {**buffers, **weights})
