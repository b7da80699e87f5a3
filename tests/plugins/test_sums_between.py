"""Sums between two positions, against sums of float64 numbers without a cumulative sum."""

import math

import pytest
import torch

from headtohead.plugin import sums_between

EPSILON = torch.finfo(torch.float32).eps

TERMS = {
    "weak decays": lambda noise: 0.1 * noise,
    "strong decays": lambda noise: 30 * noise,
    "a weak decay after strong decays": lambda noise: torch.where(
        noise < -0.9, 300 * noise, 0.001 * noise
    ),
}


def decays(kind, time, dtype=torch.float32):
    """Return logarithms of decays, ``[2, time]``, which are exact in float32."""
    noise = -torch.rand(2, time, generator=torch.Generator().manual_seed(4))
    return TERMS[kind](noise).to(dtype)


@pytest.mark.parametrize("kind", TERMS)
def test_float32_sums_over_a_long_sequence_have_the_precision_of_float32(kind):
    terms = decays(kind, 1024)
    found = sums_between(terms)
    assert found.dtype == torch.float32
    for query, key in ((1023, 1022), (1023, 1000), (1020, 3), (500, 499), (600, 520), (3, 700)):
        first, last = sorted((query, key))
        for row, numbers in enumerate(terms.tolist()):
            expected = math.fsum(numbers[first + 1 : last + 1])
            expected = expected if query > key else -expected
            assert found[row, query, key].item() == pytest.approx(expected, rel=3 * EPSILON)


@pytest.mark.parametrize("kind", TERMS)
def test_float32_gradients_of_decays_have_the_precision_of_float32(kind):
    weights = torch.randn(300, 300, generator=torch.Generator().manual_seed(5))
    later = torch.ones(300, 300, dtype=torch.bool).triu(1)

    def gradient(terms):
        terms.requires_grad_()
        products = sums_between(terms).masked_fill(later, -math.inf).exp()
        (products * weights.to(products.dtype)).sum().backward()
        return terms.grad.double()

    found, expected = gradient(decays(kind, 300)), gradient(decays(kind, 300, torch.float64))
    assert float((found - expected).abs().max() / expected.abs().max()) < 20 * EPSILON


@pytest.mark.parametrize(
    ("dtype", "result"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
    ],
)
def test_the_last_queries_are_the_last_rows_in_at_least_float32(dtype, result):
    terms = decays("weak decays", 9, dtype)
    found = sums_between(terms)
    assert found.dtype == result
    assert torch.equal(sums_between(terms, 2), found[..., -2:, :])


def test_the_gradient_in_float64_is_that_of_finite_differences():
    terms = decays("weak decays", 6, torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: sums_between(x, 3), terms)
