"""Small models and sentence pairs for traces."""

import pytest

from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from headtohead_notebooks.trace import Trace, TraceInputs, collect

WORDS = ["<pad>", "<unk>", "<sos>", "<eos>", "wa", "wo", "wu", "wi", "we"]


@pytest.fixture(scope="session")
def inputs():
    """Return a function that makes inputs: four source tokens, and three target tokens or the decoder's only length."""

    def make(subject):
        target = [2, *(4 + position % 5 for position in range((subject.only_length or 3) - 1))]
        labels = tuple(f"t{position}" for position in range(len(target)))
        return TraceInputs([4, 7, 5, 3], target, ("s0", "s1", "s2", "s3"), labels, WORDS)

    return make


@pytest.fixture(scope="session")
def traced(inputs):
    """Return a function that makes a subject with given fields, and the trace of one member."""

    def make(member=0, seeds=(1,), **choices):
        small = {"encoder_layers": 1, "decoder_layers": 1}
        subject = Subject(tiny_config(**(small | choices)), seeds=seeds)
        steps = collect(subject.model, inputs(subject), member)
        return subject, Trace("a model", "s", "t", steps, (), subject.model.attends_to_source)

    return make
