"""T5's buckets against their definition in 40 digits, and its biases against loops."""

from decimal import Decimal, localcontext
from functools import cache

import pytest
import torch

from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from headtohead_plugins.positional.t5_relative import find_buckets, first_distances
from made import case_table

EVERYWHERE = dict.fromkeys(("encoder", "decoder", "cross"), "t5-relative")


@cache
def bucket(apart, buckets, most, both):
    """Section 2.1 for a pair of positions: half exact, half logarithmic, in 40 digits."""
    start = 0
    if both:
        buckets //= 2
        start, distance = (buckets if apart > 0 else 0), abs(apart)
    else:
        distance = max(-apart, 0)
    half = buckets // 2
    if distance < half:
        return start + distance
    with localcontext(prec=40):
        share = (Decimal(distance) / half).ln() / (Decimal(most) / half).ln()
        return start + min(buckets - 1, half + int(half * share + Decimal("1e-30")))


@case_table("both", [True, False], ids=["encoder", "decoder"], default=3)
@case_table(("buckets", "most"), [(32, 128), (16, 40), (8, 9), (64, 1000), (4, 3)], default=3)
def test_every_distance_has_the_bucket_of_the_definition(buckets, most, both):
    queries, keys = torch.arange(0, 300, 7), torch.arange(300)
    found = find_buckets(queries[None], keys[None], buckets, most, both)
    expected = [[bucket(j - i, buckets, most, both) for j in range(300)] for i in queries.tolist()]
    assert found.tolist() == [expected]


def test_bucket_boundaries_of_the_papers_sizes():
    assert first_distances(16, 128)[8:] == [8, 12, 16, 23, 32, 46, 64, 91]
    assert first_distances(32, 128)[16:] == [16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]


@pytest.mark.parametrize("role", ["encoder", "decoder", "cross"])
@torch.no_grad()
def test_scores_are_scaled_products_plus_the_bias_of_the_bucket(role):
    subject = Subject(tiny_config(EVERYWHERE))
    attention, table = subject.attention(role), subject.positional(role).table
    x, memory = subject.activations(role)
    seen = {}
    attention(x, memory, subject.attention_context(role, shift=40), None, seen.__setitem__)
    queries, keys, scores = seen["queries"], seen["keys"], seen["scores"]
    member, row, head = 1, 2, 3
    for i in range(queries.shape[3]):
        for j in range(keys.shape[3]):
            product = sum(float(queries[member, row, head, i, c] * keys[member, row, head, j, c]) for c in range(4))
            number = table[member, head, bucket(j - i, 32, 128, role != "decoder")]
            expected = product / 4**0.5 + float(number)
            assert scores[member, row, head, i, j].item() == pytest.approx(expected, abs=1e-12)


def test_encoder_buckets_distinguish_directions_and_decoder_buckets_cover_earlier_keys():
    positions = torch.arange(6)[None]
    encoder, decoder = (Subject(tiny_config("t5-relative")).positional(role) for role in ("encoder", "decoder"))
    both = encoder.bias(positions, positions, "encoder", 0)
    assert not torch.isclose(both, both.transpose(-2, -1))[..., 0, 1:].any()
    back = decoder.bias(positions, positions, "decoder", 0)
    later = torch.ones(6, 6).triu(1).bool()
    here = decoder.table[:, None, :, :1].expand(-1, -1, -1, int(later.sum()))
    assert torch.equal(back[..., later], here), "what is ahead is at distance 0"


def test_initial_values_have_the_variance_of_the_authors_code():
    config = tiny_config({"name": "t5-relative", "buckets": 4000}, d_model=16)
    # The subject multiplies each element by a factor that is uniform from 0.6 to 1.4.
    spread = Subject(config).positional("encoder").table.std(dim=(1, 2))
    torch.testing.assert_close(
        spread, torch.full((2,), ((1 + 0.4**2 / 3) / 16) ** 0.5, dtype=torch.float64), rtol=0.03, atol=0
    )
