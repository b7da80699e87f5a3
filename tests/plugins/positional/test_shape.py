"""SHAPE: random offsets in training, and plain sinusoids in evaluation."""

import torch

from headtohead.model.transformer import Transformer
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from headtohead_plugins.positional.sinusoidal import sinusoids
from made.equality import same_function


def built(seeds=(1, 2), **options):
    config = tiny_config({"name": "shape", **options})
    return Transformer(config, seeds, 12, 9).double()


def test_offsets_are_sampled_per_sentence_and_step():
    part = built().positionals["encoder"]
    first, second = part.draw(50, 7), part.draw(50, 7)
    assert first.shape == (2, 50, 7)
    assert torch.equal(first - first[..., :1], torch.arange(7).expand(2, 50, 7))
    for offsets, other_offsets in ((first, second), (first[:1], first[1:])):
        assert (offsets[..., 0] != other_offsets[..., 0]).float().mean() > 0.9


def test_offsets_are_uniform_from_zero_to_the_largest_shift():
    part = built(max_shift=3).positionals["decoder"]
    shifts = torch.stack([part.draw(100, 1)[0, :, 0] for _ in range(10)])
    counts = torch.bincount(shifts.flatten(), minlength=4)
    assert len(counts) == 4, "3 is drawn and 4 is not"
    # The chi-squared distribution with 3 degrees of freedom exceeds 16.3 with probability 0.001.
    assert ((counts - 250.0).square() / 250).sum() < 16.3


def test_training_embeds_the_shifted_rows():
    model = built().train()
    source = torch.tensor([[[4, 5, 6], [7, 8, 9]], [[5, 6, 7], [8, 9, 10]]])
    part, recorded = model.positionals["encoder"], {}
    draw = part.draw
    part.draw = lambda batch, time: recorded.setdefault("drawn", draw(batch, time))
    model.encode(
        source, torch.full((2, 2), 3), lambda role, layer, name, x: recorded.update({name: x})
    )
    assert recorded["drawn"].min() > 0
    expected = sinusoids(recorded["drawn"], 16)
    torch.testing.assert_close(
        recorded["positions"].view(2, 2, 3, 16), expected, rtol=0, atol=1e-12
    )


def test_in_evaluation_shape_is_sinusoidal():
    shape = tiny_config("shape")
    buffers = Subject(shape).model.state_dict()
    assert same_function(tiny_config("sinusoidal"), shape, lambda weights: {**buffers, **weights})
