"""Small models and sentences whose forward passes are told."""

import pytest

from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from headtohead.tools.trace import Sentences, Trace, collect

WORDS = ["<pad>", "<unk>", "<sos>", "<eos>", "wa", "wo", "wu", "wi", "we"]


@pytest.fixture(scope="session")
def sentences():
    """Four source tokens, and three of the target or as many as the decoder needs."""

    def read(subject):
        target = [2, *(4 + place % 5 for place in range((subject.only_length or 3) - 1))]
        labels = tuple(f"t{place}" for place in range(len(target)))
        return Sentences([4, 7, 5, 3], target, ("s0", "s1", "s2", "s3"), labels, WORDS)

    return read


@pytest.fixture(scope="session")
def told(sentences):
    """A subject made of choices, and the trace of one member."""

    def tell(member=0, seeds=(1,), **choices):
        small = {"encoder_layers": 1, "decoder_layers": 1}
        subject = Subject(tiny_config(**(small | choices)), seeds=seeds)
        steps = collect(subject.model, sentences(subject), member)
        return subject, Trace("a model", "s", "t", steps, (), subject.model.attends_to_source)

    return tell
