"""KERPLE's logarithmic kernel against loops, and its initialisation against the authors' code."""

import math

import pytest
import torch

from headtohead.model.transformer import Transformer
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config


def softplus(raw):
    return math.log1p(math.exp(raw))


@pytest.mark.parametrize("layers", ["shared", "own"])
@pytest.mark.parametrize("role", ["encoder", "decoder", "cross"])
@torch.no_grad()
def test_biases_equal_the_kernel_of_each_pair(role, layers):
    everywhere = dict.fromkeys(("encoder", "decoder", "cross"))
    config = tiny_config({role: {"name": "kerple-log", "layers": layers} for role in everywhere})
    part = Subject(config).positional(role)
    queries, keys = torch.tensor([[3, 4, 9]]), torch.tensor([[0, 3, 5, 40]])
    last = 0 if role == "encoder" else 1
    found = part.bias(queries, keys, role, last)
    assert found.shape == (2, 1, 4, 3, 4)
    for member in range(2):
        for head in range(4):
            own = last if layers == "own" else 0
            r1, r2 = (softplus(float(r[member, own, head])) for r in (part.r1, part.r2))
            for a, i in enumerate(queries[0].tolist()):
                for b, j in enumerate(keys[0].tolist()):
                    expected = -r1 * math.log(1 + r2 * abs(i - j))
                    value = found[member, 0, head, a, b].item()
                    assert value == pytest.approx(expected, abs=1e-12)


def test_parameters_are_shared_by_all_layers_or_separate_per_layer():
    shared = Subject(tiny_config("kerple-log")).positional("decoder")
    own = Subject(tiny_config({"name": "kerple-log", "layers": "own"})).positional("decoder")
    assert shared.r1.shape == (2, 1, 4)
    assert own.r1.shape == (2, 2, 4)
    positions = torch.arange(5)[None]

    def layers(part):
        return [part.bias(positions, positions, "decoder", layer) for layer in (0, 1)]

    assert torch.equal(*layers(shared))
    assert not torch.equal(*layers(own))


def test_initial_values_have_the_distribution_of_the_authors_code():
    config = tiny_config("kerple-log", d_model=100, heads=100, d_ff=1)
    part = Transformer(config, range(10), 5, 5).positionals["encoder"]
    for raw, most in ((part.r1, 2.0), (part.r2, 1.0)):
        drawn = torch.nn.functional.softplus(raw).detach()
        assert drawn.min() > 0.009
        assert drawn.max() < most
        for quantile in (0.25, 0.5, 0.75):
            found = drawn.flatten().quantile(quantile).item() / most
            assert found == pytest.approx(quantile, abs=0.04)
