"""Styles: initialisation, special cases and incompatibility."""

import math

import pytest
import torch

from headtohead.model.decoding import greedy
from headtohead.planning.compatibility import find_incompatibility
from headtohead.plugins.registry import current
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from made import refused
from made.equality import same_function

REGISTRY = current()

# -- special cases -------------------------------------------------------------------------------


@pytest.mark.parametrize("positional", ["sinusoidal", "rotary", "alibi"])
@pytest.mark.parametrize(("shift", "same"), [(0, True), (1, False)])
def test_talking_heads_with_identity_projections_are_split_heads(positional, shift, same):
    """With heads shifted by 1, scores and weights belong to other values."""
    talking = tiny_config(positional, "talking-heads")
    names = [name for name in Subject(talking).model.state_dict() if ".style." in name]
    assert len(names) == 2 * (1 + 2 * 2)
    matrix = torch.eye(4, dtype=torch.float64).roll(shift, 0).expand(2, 4, 4)

    def carry(weights):
        return {**weights, **dict.fromkeys(names, matrix)}

    assert same_function(tiny_config(positional, "split-heads"), talking, carry) is same


# -- initialisation ------------------------------------------------------------------------------


def style(choice, role="encoder", layer=0, **model):
    built = Subject(tiny_config("none", choice, **model))
    fresh = type(built.model)(built.config, built.seeds, *built.vocab_sizes)
    stack = fresh.encoder if role == "encoder" else fresh.decoder
    return stack[layer].attention.style


def test_learned_scale_is_initialised_as_in_the_paper():
    assert style({"name": "qk-norm", "length": 10}).gain.eq(math.log2(90)).all()
    assert style({"name": "qk-norm", "norm": "rms"}).gain.eq(1).all()


def test_talking_heads_are_initialised_as_split_heads_or_as_by_the_authors():
    identity = style("talking-heads")
    assert identity.before.eq(torch.eye(4)).all()
    assert identity.after.eq(torch.eye(4)).all()
    drawn = style({"name": "talking-heads", "start": "random"}, d_model=128, heads=64)
    assert abs(float(drawn.before.detach().std()) - 64**-0.5) < 0.005
    assert not drawn.before[0].eq(drawn.before[1]).any()


@pytest.mark.parametrize(("layer", "share"), [(0, 0.2), (1, 0.8 - 0.6 * math.exp(-0.3))])
def test_factor_of_the_second_map_is_initialised_by_layer(layer, share):
    found = style("differential", "decoder", layer)
    assert found.lambda_init == pytest.approx(share, abs=1e-12)
    assert (found.lambda_() - share).abs().max() < 0.25
    assert found.gain.eq(1).all()


# -- geometry ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "sizes"),
    [
        ("single-head", (1, 1, 16, 16)),
        ("independent-heads", (4, 4, 16, 16)),
        ({"name": "grouped-query", "kv_heads": 2}, (4, 2, 4, 4)),
        ({"name": "free-geometry", "key_width": 5, "value_width": 7, "kv_heads": 1}, (4, 1, 5, 7)),
    ],
)
def test_heads_and_widths_are_those_of_the_options(choice, sizes):
    found = Subject(tiny_config("none", choice)).attention("encoder").context.geometry
    assert (found.heads, found.kv_heads, found.key_width, found.value_width) == sizes
    assert found.scale == pytest.approx(found.key_width**-0.5)


# -- incompatibility -----------------------------------------------------------------------------


def test_sentences_longer_than_the_random_matrix_are_refused():
    config = tiny_config("none", {"name": "random", "max_length": 7})
    assert find_incompatibility(config, {"source": 7, "target": 7}) is None
    assert find_incompatibility(config, {"source": 8, "target": 7}) == (
        "a source of 8 tokens is longer than the 7 positions of random; set attention.encoder.max_length to at least 8"
    )
    model = Subject(config).model
    ids, lengths = torch.ones(2, 1, 8, dtype=torch.long), torch.full((2, 1), 8)
    message = "position 8 is beyond the 7 positions of random; set attention.encoder"
    assert refused(model, ids, lengths, ids, lengths).startswith(message)


def test_decoding_stops_at_the_size_of_the_random_matrix():
    subject = Subject(tiny_config("none", {"name": "random", "max_length": 7}))
    read = subject.sentences
    assert greedy(subject.model, read.source, read.source_lengths, 50).shape[-1] == 7
    model = subject.model
    memory = model.encode(read.source, read.source_lengths)
    message = refused(
        model.step, read.target[:, :, :1], 7, memory, read.source_lengths, model.caches()
    )
    assert "position 8 is beyond the 7 positions of random" in message
