"""Dropout acts at the place that is named, in training, and nowhere else."""

import pytest
import torch
from torch.nn import functional

from headtohead.model.transformer import Transformer
from headtohead.testing.kernels import KERNELS, forced
from headtohead.testing.subject import Subject, explicit_forward, forward
from headtohead.testing.tiny import tiny_config

PLACES = ["embedding", "attention", "ffn", "residual"]


def build(training=True, **rates):
    subject = Subject(tiny_config())
    model = Transformer(tiny_config(**rates), subject.seeds, *subject.words).double()
    return model.train(training), subject


@pytest.mark.parametrize("place", PLACES)
def test_dropout_at_one_place_changes_training_and_not_evaluation(place):
    rates = {f"dropout_{place}": 0.5}
    plain, subject = build()
    expected = forward(plain, subject.sentences)
    dropped, _ = build(**rates)
    assert not torch.equal(forward(dropped, subject.sentences), expected)
    evaluated, _ = build(training=False, **rates)
    assert torch.equal(forward(evaluated, subject.sentences), expected)


EXPECTED_CALLS = {
    # 1 encoder layer and 2 decoder layers: two stacks, five attentions, three feed-forwards.
    "embedding": 2,
    "attention": 5,
    "ffn": 3,
    "residual": 5 + 3,
}
WIDTHS = {"embedding": {16}, "attention": {5, 6}, "ffn": {12}, "residual": {16}}


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("place", PLACES)
def test_dropout_acts_as_often_and_as_wide_as_its_place(place, norm, monkeypatch):
    calls = []
    plain = functional.dropout

    def counted(x, rate, training):
        calls.append((x.shape[-1], rate))
        return plain(x, rate, training)

    monkeypatch.setattr(functional, "dropout", counted)
    model, subject = build(**{f"dropout_{place}": 0.25}, norm=norm)
    explicit_forward(model, subject.sentences)
    assert len(calls) == EXPECTED_CALLS[place]
    assert {width for width, _ in calls} == WIDTHS[place]
    assert {rate for _, rate in calls} == {0.25}


def test_dropout_of_weights_keeps_their_mean():
    """Fused and explicit attention drop the same share and scale up what stays."""
    subject = Subject(tiny_config())
    model, _ = build(dropout_attention=0.5)
    attention = model.encoder[0].attention
    x, _ = subject.activations("encoder")
    view = subject.view("encoder", keep=subject.keep("encoder"))
    torch.manual_seed(0)
    with torch.no_grad():
        expected = attention.eval()(x, None, view)
        attention.train()
        for kernel, record in (*((one, None) for one in KERNELS), ("short", ignore)):
            with forced(kernel):
                total = sum(attention(x, None, view, None, record) for _ in range(1500)) / 1500
            assert (total - expected).abs().max() < 0.15 * expected.abs().max()


def ignore(name, value):
    """Take an intermediate tensor, which is what sends attention down the explicit path."""


def test_one_rate_stands_for_all_places_unless_one_is_named():
    config = tiny_config(dropout=0.3, dropout_ffn=0.0)
    sizes = Transformer(config, None, 9, 9).sizes
    found = [getattr(sizes, f"dropout_{place}") for place in PLACES]
    assert found == [0.3, 0.3, 0.0, 0.3]
