"""Randomised positions: their distribution, the hooks that receive them, and evaluation."""

from collections import Counter
from itertools import combinations

import pytest
import torch

from headtohead.model.transformer import Transformer
from headtohead.plugin import sorted_subset
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from headtohead_plugins.positional.randomised import __doc__ as declaration
from headtohead_plugins.positional.randomised import evaluation_positions

ALL = ["sinusoidal", "rotary", "alibi"]


def randomised(**options):
    return tiny_config({"name": "randomised", **options})


def part(training=False, **options):
    model = Transformer(randomised(**options), [1, 2], 12, 9).double().train(training)
    return model.positionals["decoder"]


@pytest.mark.parametrize(("most", "count"), [(5, 2), (6, 5), (4, 1)])
def test_all_subsets_are_equally_likely(most, count):
    drawn = sorted_subset(most, count, 12_000, torch.Generator().manual_seed(3)).tolist()
    found = Counter(map(tuple, drawn))
    every = list(combinations(range(1, most + 1), count))
    assert set(found) == set(every)
    expected = len(drawn) / len(every)
    surplus = sum((found[subset] - expected) ** 2 / expected for subset in every)
    # Mean of the chi-squared distribution plus five standard deviations.
    freedom = len(every) - 1
    assert surplus < freedom + 5 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("columns", [3, 30])
def test_padding_lowers_the_positions_of_a_sentence_as_the_entry_declares(columns):
    """The expected i-th smallest of T numbers of 1..L is i (L + 1) / (T + 1)."""
    means = part().draw(2000, columns)[..., :3].double().mean(dim=(0, 1))
    expected = torch.arange(1, 4) * 2049 / (columns + 1)
    torch.testing.assert_close(means, expected.double(), rtol=0.05, atol=0)
    assert "depend on the padding of its batch" in " ".join(declaration.split())


@pytest.mark.parametrize("of", ALL)
def test_training_passes_the_sampled_positions_to_the_encoding(of):
    own, plain = part(True, of=of), Subject(tiny_config(of)).positional("decoder")
    drawn = own.draw(3, 5).flatten(0, 1)
    x = torch.randn(1, 6, 4, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    for hook, *arguments in (("embed", drawn), ("rotate", x, drawn), ("bias", drawn, drawn)):
        more = ("decoder",) if hook == "embed" else ("decoder", 0)
        found = getattr(own, hook)(*arguments, *more)
        expected = getattr(plain, hook)(*arguments, *more)
        assert (found is None) is (expected is None)
        assert found is None or torch.equal(found, expected)


def test_evaluation_uses_a_fixed_sorted_subset_for_all_lengths():
    own = part()
    fixed = evaluation_positions(torch.arange(32), 2048, 32).tolist()
    assert fixed == sorted(set(fixed)) == evaluation_positions(torch.arange(32), 2048, 32).tolist()
    assert len(fixed) == 32
    assert 1 <= fixed[0] <= fixed[-1] <= 2048
    long, short = (own.embed(torch.arange(n)[None], "decoder") for n in (20, 7))
    assert torch.equal(long[:, :, :7], short)
    step = own.embed(torch.tensor([[6]]), "decoder")
    assert torch.equal(step[:, :, 0], short[:, :, 6])
    numbers = torch.tensor(fixed)[None, :7]
    expected = Subject(tiny_config("sinusoidal")).positional("decoder").embed(numbers, "decoder")
    assert torch.equal(short, expected)
