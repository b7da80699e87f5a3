"""Encodings against the formulas of their papers, in loops over Python floats."""

import math
from decimal import Decimal, localcontext
from functools import cache

import pytest
import torch

from headtohead.model.transformer import Transformer
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from headtohead_plugins.positional import hard_alibi
from headtohead_plugins.positional.t5_relative import find_buckets
from made import case_table


def same(found, queries, keys, expected, close=1e-12):
    """Compare ``[head, query, key]`` with a function of the head and the two positions."""
    loops = [[[expected(head, i, j) for j in keys] for i in queries] for head in range(len(found))]
    torch.testing.assert_close(found, torch.tensor(loops, dtype=torch.float64), rtol=0, atol=close)


# -- hard-alibi -------------------------------------------------------------------------------------------


def test_head_n_of_the_windows_of_hard_alibi_has_n_keys_on_each_side_and_other_heads_have_no_positions():
    positions = torch.arange(5).unsqueeze(0)
    found = hard_alibi.biases(positions, positions, heads=4, windows=3)[0, 0]
    same(
        found,
        range(5),
        range(5),
        lambda head, i, j: -1e6 if head < 3 and abs(i - j) > head else 0.0,
    )


# -- kerple-log --------------------------------------------------------------------------------------


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
    own = last if layers == "own" else 0
    for member in range(2):
        r1, r2 = (
            [softplus(value) for value in r[member, own, :, 0].tolist()] for r in (part.r1, part.r2)
        )
        expected = lambda head, i, j: -r1[head] * math.log(1 + r2[head] * abs(i - j))  # noqa: B023, E731
        same(found[member, 0], queries[0].tolist(), keys[0].tolist(), expected)


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


# -- t5-relative -------------------------------------------------------------------------------------

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
            product = sum(
                float(queries[member, row, head, i, c] * keys[member, row, head, j, c])
                for c in range(4)
            )
            number = table[member, head, bucket(j - i, 32, 128, role != "decoder")]
            expected = product / 4**0.5 + float(number)
            assert scores[member, row, head, i, j].item() == pytest.approx(expected, abs=1e-12)


def test_initial_values_have_the_variance_of_the_authors_code():
    config = tiny_config({"name": "t5-relative", "buckets": 4000}, d_model=16)
    # The subject multiplies each element by a factor that is uniform from 0.6 to 1.4.
    spread = Subject(config).positional("encoder").table.std(dim=(1, 2))
    torch.testing.assert_close(
        spread,
        torch.full((2,), ((1 + 0.4**2 / 3) / 16) ** 0.5, dtype=torch.float64),
        rtol=0.03,
        atol=0,
    )


# -- shaw-relative -----------------------------------------------------------------------------------

CLIP = 2


def shaw(**options):
    options_by_role = {"name": "shaw-relative", "clip": CLIP, **options}
    return Subject(tiny_config(dict.fromkeys(("encoder", "decoder", "cross"), options_by_role)))


def vector_of(table, member, layer, head, c):
    """The vector of a distance, shared by the heads or per head."""
    heads = table[member, layer]
    return heads[head if len(heads) > 1 else 0, c + CLIP].tolist()


def clipped(apart):
    return max(-CLIP, min(CLIP, apart))


@case_table("heads", ["shared", "own"], default=6)
@case_table("on", ["both", "keys", "values"], default=6)
@case_table("role", ["encoder", "decoder", "cross"], default=6)
@torch.no_grad()
def test_scores_and_outputs_equal_the_papers_equations(role, on, heads):
    subject = shaw(on=on, heads=heads)
    part = subject.positional(role)
    x, memory = subject.activations(role)
    seen = {}
    subject.attention(role)(
        x, memory, subject.attention_context(role, mask=subject.mask(role)), None, seen.__setitem__
    )
    member, row = 1, 2
    for head in range(4):
        q, k, v = (seen[name][member, row, head].tolist() for name in ("queries", "keys", "values"))
        weights = seen["weights"][member, row, head].tolist()
        for i in range(len(q)):
            out = [0.0] * 4
            for j in range(len(k)):
                key, value = list(k[j]), list(v[j])
                if on != "values":
                    added = vector_of(part.on_keys, member, 0, head, clipped(j - i))
                    key = [a + b for a, b in zip(key, added, strict=True)]
                if on != "keys":
                    added = vector_of(part.on_values, member, 0, head, clipped(j - i))
                    value = [a + b for a, b in zip(value, added, strict=True)]
                product = sum(a * b for a, b in zip(q[i], key, strict=True))
                found = seen["scores"][member, row, head, i, j].item()
                assert found == pytest.approx(product / 4**0.5, abs=1e-12)
                out = [o + weights[i][j] * c for o, c in zip(out, value, strict=True)]
            assert seen["heads"][member, row, head, i].tolist() == pytest.approx(out, abs=1e-12)


# -- forgetting --------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["encoder", "decoder"])
def test_scores_are_reduced_by_the_gates_of_the_tokens_between(role):
    subject = Subject(tiny_config({"name": "forgetting", "start": 1.5}))
    part, x = subject.positional(role), subject.activations(role)[0]
    layer = part.context.layers - 1
    found = part.content_bias(x, 3, role, layer)
    weights, rows, time = part.weight[1, layer].tolist(), x[1, 2].tolist(), x.shape[2]

    def expected(head, query, key):
        offset, between = (
            part.offset[1, layer, 0, head].item(),
            rows[min(query, key) + 1 : max(query, key) + 1],
        )
        products = (
            sum(w[head] * value for w, value in zip(weights, row, strict=True)) for row in between
        )
        return sum(-math.log1p(math.exp(-product - offset)) for product in products)

    same(found[1, 2].detach(), range(time - 3, time), range(time), expected)
