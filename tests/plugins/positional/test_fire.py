"""FIRE against loops over Python floats."""

import math

import pytest
import torch

from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config

HIDDEN = 3


def fire(**options):
    decoder = {"name": "fire", "hidden": HIDDEN, **options}
    return Subject(tiny_config({"encoder": "none", "decoder": decoder}))


def network(part, member, own, share):
    """A hidden layer with ReLU and an output per head."""
    inner, outer = part.inner[member, own, :, 0].tolist(), part.outer[member, own].tolist()
    hidden = [max(0.0, share * inner[0][u] + inner[1][u]) for u in range(HIDDEN)]
    return [sum(hidden[u] * outer[u][head] for u in range(HIDDEN)) for head in range(4)]


@pytest.mark.parametrize("layers", ["own", "shared"])
@pytest.mark.parametrize("layer", [0, 1])
@torch.no_grad()
def test_biases_equal_the_function_of_the_relative_distance(layers, layer):
    part = fire(layers=layers, threshold=3.0).positional("decoder")
    positions = torch.arange(9)[None]
    found = part.bias(positions, positions, "decoder", layer)
    assert found.shape == (2, 1, 4, 9, 9)
    for member in range(2):
        own = layer if layers == "own" else 0
        c = abs(float(part.c[member, own]))
        threshold = abs(float(part.multiple[member, own])) * 3.0
        assert 1 < threshold < 8, "some places are before it and some behind"
        for i in range(9):
            for j in range(i + 1):
                psi = [math.log(c * x + 1) for x in (i - j, max(i, threshold))]
                expected = network(part, member, own, psi[0] / (psi[1] + 1e-6))
                value = found[member, 0, :, i, j].tolist()
                assert value == pytest.approx(expected, abs=1e-12)


def test_initial_values_are_those_of_the_authors_except_for_the_threshold():
    subject = fire()
    fresh = type(subject.model)(subject.config, [1], 5, 5).positionals["decoder"]
    assert fresh.c.tolist() == [pytest.approx([0.1, 0.1])]
    assert fresh.multiple.tolist() == [[1.0, 1.0]]
    assert fresh.options.threshold == 4.0


def test_later_keys_cause_no_nan_in_values_or_gradients():
    subject = fire()
    part, positions = subject.positional("decoder"), torch.arange(5)[None]
    with torch.no_grad():
        part.c.fill_(1.0)  # log(1 - 1) and log(1 - 2) are not finite
    assert part.bias(positions, positions, "decoder", 0).isfinite().all()
    loss = subject.model(*vars(subject.sentences).values()).square().sum()
    loss.backward()
    for name, parameter in part.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad.flatten(1).abs().amax(-1) > 0).all(), name
