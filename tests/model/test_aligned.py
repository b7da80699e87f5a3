"""Aligned products equal plain products; rows with many columns start at aligned addresses."""

from __future__ import annotations

import pytest
import torch

from headtohead.model.aligned import ALIGNED, WIDE, product
from headtohead.model.batch import IGNORE_INDEX
from headtohead.model.loss import token_losses

ODD = WIDE + 9
Factors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def factors(columns: int, table: bool = False, members: int = 2) -> Factors:
    generator = torch.Generator().manual_seed(7)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    weight = random(members, columns, 5).transpose(1, 2) if table else random(members, 5, columns)
    return random(members, 6, 5), weight, random(members, 1, columns)


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("table", [True, False], ids=["tied table", "lm_head"])
@pytest.mark.parametrize("columns", [ODD, WIDE + ALIGNED, 9])
def test_products_with_and_without_gradients_are_equal(columns: int, table: bool, has_bias: bool, members: int) -> None:
    x, weight, bias = factors(columns, table, members)
    shift = bias if has_bias else None
    expected = x @ weight + (bias if has_bias else 0)
    torch.testing.assert_close(product(x.requires_grad_(), weight, shift), expected, rtol=0, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(product(x, weight, shift), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("columns", "apart"), [(ODD, WIDE + ALIGNED), (9, 9)])
@torch.no_grad()
def test_rows_with_many_columns_start_at_aligned_addresses(columns: int, apart: int) -> None:
    out = product(*factors(columns))
    assert out.shape == (2, 6, columns)
    assert out.stride() == (6 * apart, apart, 1)


@torch.no_grad()
def test_losses_do_not_depend_on_the_memory_between_rows() -> None:
    x, weight, bias = factors(ODD)
    labels = torch.randint(ODD, (2, 1, 6), generator=torch.Generator().manual_seed(1))
    labels[0, 0, 3] = IGNORE_INDEX
    logits = product(x, weight, bias)
    # Every row but the last of the twelve is followed by alignment padding.
    logits.as_strided((11, ALIGNED - 9), (WIDE + ALIGNED, 1), ODD).fill_(torch.nan)
    expected = token_losses((x @ weight + bias).unsqueeze(1), labels)
    torch.testing.assert_close(token_losses(logits.unsqueeze(1), labels), expected, rtol=0, atol=1e-12)
