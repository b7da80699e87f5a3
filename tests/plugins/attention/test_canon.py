"""Canon layers: each position changes its tensor, and no other, by torch's own depthwise convolution."""

import pytest
import torch
from torch.nn.functional import conv1d, pad

from headtohead.errors import HeadToHeadError
from headtohead.testing.subject import Subject, forward
from headtohead.testing.tiny import tiny_config

TIME = 7
INPUTS = {"A": "attention.queries_keys_values", "C": "feed_forward.inner"}
"""Name of the linear map whose input a position of canon layers changes."""

OUTPUTS = {"B": "attention.queries_keys_values", "D": "feed_forward.inner"}
"""Name of the linear map whose output a position changes."""


def subject_of(at="ABCD", **fields):
    options = {"name": "canon", "at": at, "kernel": 3}
    return Subject(tiny_config("none", options, architecture="decoder-only", **fields))


def convolved(x, kernel):
    """Return ``x [member, tokens, width]`` plus its causal depthwise convolution, sentence by sentence."""
    rows = []
    for member, sentences in enumerate(x.view(len(x), -1, TIME, x.shape[-1])):
        # conv1d multiplies the last weight with the token itself.
        weight = kernel[member].flip(0).T.unsqueeze(1)
        padded = pad(sentences.transpose(1, 2), (len(kernel[member]) - 1, 0))
        mixed = conv1d(padded, weight, groups=len(weight)).transpose(1, 2)
        rows.append((sentences + mixed).flatten(0, 1))
    return torch.stack(rows)


def observed(model, at):
    """Return what the first layer's maps read and return in a pass, and the recorded steps."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(4, 9, (2, 3, TIME), generator=generator)
    lengths = torch.full((2, 3), TIME)
    layer = model.decoder[0]
    seen = {}
    handles = []
    for name in INPUTS.values():
        part = layer.get_submodule(name)

        def keep(module, arguments, output, name=name):
            seen[f"{name} in"] = arguments[0].detach()
            seen[f"{name} out"] = output.detach()

        handles.append(part.register_forward_hook(keep))

    def record(role, index, name, value):
        if index == 0:
            seen[name] = value.detach()

    with torch.no_grad():
        model.decode(ids, lengths, observe=record)
    for handle in handles:
        handle.remove()
    return seen


@pytest.mark.parametrize("network", ["relu", "swiglu"])
@pytest.mark.parametrize("at", ["A", "B", "C", "D", "ABCD"])
def test_a_position_convolves_its_tensor_and_no_other(at, network):
    subject = subject_of(at, feed_forward=network)
    model = subject.model
    style = model.decoder[0].attention.style
    kernel = {position: getattr(style, position).detach() for position in at}
    seen = observed(model, at)

    def changed(position, x):
        return convolved(x, kernel[position]) if position in at else x

    attention, inner = INPUTS["A"], INPUTS["C"]
    same(seen[f"{attention} in"], changed("A", seen["norm"]))
    same(seen[f"{inner} in"], changed("C", seen["feed_forward.norm"]))
    projections = changed("B", seen[f"{attention} out"])
    recorded = [seen[name] for name in ("queries", "keys", "values")]
    same(torch.cat([x.transpose(2, 3).flatten(1, 2).flatten(2) for x in recorded], -1), projections)
    parts = [seen["feed_forward.inner"]]
    if network == "swiglu":
        parts.append(seen["feed_forward.gate"])
    same(torch.cat(parts, -1), changed("D", seen[f"{inner} out"]))


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_position_a_is_the_short_convolution():
    models = [
        Subject(tiny_config("none", {"name": name, "kernel": 3, **at}, architecture="decoder-only"))
        for name, at in (("canon", {"at": "A"}), ("short-convolution", {}))
    ]
    logits = [forward(subject.model, models[0].sentences) for subject in models]
    torch.testing.assert_close(*logits, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("network", "kv_heads", "joined", "inner"),
    [("gelu", 4, 48, 12), ("swiglu", 4, 48, 24), ("relu", 2, 32, 12)],
)
def test_every_position_has_a_kernel_per_channel(network, kv_heads, joined, inner):
    options = {"name": "canon", "kv_heads": kv_heads}
    subject = Subject(tiny_config("none", options, feed_forward=network))
    style = subject.model.encoder[0].attention.style
    widths = {"A": 16, "B": joined, "C": 16, "D": inner}
    assert {name: tuple(value.shape) for name, value in style.named_parameters()} == {
        name: (2, 4, width) for name, width in widths.items()
    }


@pytest.mark.parametrize("at", ["", "BA", "E", "AA"])
def test_positions_are_letters_in_their_order(at):
    with pytest.raises(HeadToHeadError, match="at"):
        tiny_config("none", {"name": "canon", "at": at})
