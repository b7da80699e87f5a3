"""Dropout acts at the configured site, in training only, and independently for each member."""

import pytest
import torch

from headtohead.model.dropout import LEVELS, Dropout, DropoutRNG, Thresholds
from headtohead.model.members import PerMember
from headtohead.model.splitmix import mix_, mixed, signed
from headtohead.model.transformer import Transformer
from headtohead.testing.subject import KERNELS, Subject, explicit_forward, force_kernel, forward
from headtohead.testing.tiny import tiny_config

CPU = torch.device("cpu")


def build(training=True, **rates):
    subject = Subject(tiny_config())
    model = Transformer(tiny_config(**rates), subject.seeds, *subject.vocab_sizes).double()
    return model.train(training), subject


def numbers(keys, step=0, site=0, count=4001, **rows):
    stream = DropoutRNG(keys, CPU)
    stream.set_step(step)
    stream.start_microbatch(**rows)
    return stream.numbers(site, count)


# 1 encoder layer and 2 decoder layers: two stacks, five attentions, three feed-forwards.
SITES = [
    ("embedding", "pre", 2, {16}),
    ("attention", "post", 5, {5, 6}),
    ("ffn", "pre", 3, {12}),
    ("residual", "post", 5 + 3, {16}),
    ("residual", "pre", 5 + 3, {16}),
]


@pytest.mark.parametrize(("site", "norm", "count", "widths"), SITES)
def test_dropout_acts_at_its_site_in_training_only(site, norm, count, widths, monkeypatch):
    calls = []
    for name in ("forward", "transposed"):
        plain = getattr(Dropout, name)

        def counted(self, x, plain=plain):
            if self.is_active:
                calls.append((x.shape[-1], self.rate))
            return plain(self, x)

        monkeypatch.setattr(Dropout, name, counted)
    model, subject = build(**{f"dropout_{site}": 0.25}, norm=norm)
    dropped = explicit_forward(model, subject.sentences)
    assert len(calls) == count
    assert {width for width, _ in calls} == widths
    assert {rate for _, rate in calls} == {0.25}
    plain = explicit_forward(build(norm=norm)[0], subject.sentences)
    assert not torch.equal(dropped, plain)
    assert torch.equal(explicit_forward(model.eval(), subject.sentences), plain)


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_attention_path_applies_the_same_dropout_mask(kernel):
    model, subject = build(dropout=0.3)
    with force_kernel(kernel):
        model.dropout_rng.set_step(4)
        fused = forward(model, subject.sentences)
        model.dropout_rng.set_step(4)
        assert (explicit_forward(model, subject.sentences) - fused).abs().max() < 1e-10
        assert not torch.allclose(forward(model, subject.sentences), fused)


def test_mixing_gives_the_published_outputs_of_splitmix64():
    """The first outputs of SplitMix64 from 1234567, as its reference program prints them."""
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    words = [1234567 + (i + 1) * 0x9E3779B97F4A7C15 for i in range(5)]
    assert [mixed(word % 2**64) for word in words] == expected
    ours = mix_(torch.tensor([signed(word) for word in words]))
    assert [word % 2**64 for word in ours.tolist()] == expected


def test_numbers_of_a_member_do_not_depend_on_its_stack():
    together = numbers([5, 2**63 + 9, 2**56])
    for member, key in enumerate([5, 2**63 + 9, 2**56]):
        assert torch.equal(numbers([key])[0], together[member])


@pytest.mark.parametrize("rows", [(0, 3), (3, 1), (4, 3)], ids=str)
def test_a_microbatch_has_the_numbers_of_the_whole_batch(rows):
    first, count = rows
    whole = numbers([5, 6], count=7 * 11)
    piece = numbers([5, 6], count=count * 11, first=first, rows=count)
    assert torch.equal(piece, whole[:, first * 11 : (first + count) * 11])


def test_numbers_of_members_steps_sites_and_calls_are_uncorrelated():
    stream = DropoutRNG([1, 2], CPU)
    found = []
    for step in (0, 1, 2):
        stream.set_step(step)
        found += [stream.numbers(site, 200_000).double() for site in (1, 1, 2)]
    drawn = torch.cat(found)
    correlation = torch.corrcoef(drawn) - torch.eye(len(drawn))
    # The largest of 153 pairs; each is within 5 standard deviations of zero.
    assert correlation.abs().max() < 5 / 200_000**0.5
    neighbours = torch.corrcoef(torch.stack([drawn[0, :-1], drawn[0, 1:]]))[0, 1]
    assert neighbours.abs() < 5 / 200_000**0.5


def test_numbers_are_uniform():
    drawn = numbers([11], count=2**22)[0].long() + LEVELS // 2
    counts = torch.bincount(drawn, minlength=LEVELS).double()
    expected = 2**22 / LEVELS
    # Pearson's statistic has mean 65,535 and standard deviation 362.
    assert abs(float(((counts - expected) ** 2 / expected).sum()) - 65_535) < 5 * 362


def test_each_member_has_its_own_dropout_rate():
    site = Dropout(DropoutRNG([1, 2, 3], CPU), 1, Thresholds(PerMember([0.0, 0.1, 0.5])))
    x = torch.full((3, 400, 500), 2.0)
    dropped = site(x)
    assert torch.equal(dropped[0], x[0])
    for member, expected in ((1, 0.1), (2, 0.5)):
        zero = dropped[member] == 0
        # Five standard deviations of a fraction of 200,000.
        assert float(zero.double().mean()) == pytest.approx(expected, abs=5 * 0.5 / 200_000**0.5)
        scales = dropped[member][~zero].unique().tolist()
        assert scales == pytest.approx([2.0 / (1 - expected)], rel=1e-5)
    assert site.eval()(x) is x
