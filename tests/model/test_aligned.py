"""Aligned products equal plain products, forward and backward, for every weight layout."""

import pytest
import torch
from torch.nn import functional

from headtohead.model import aligned
from headtohead.model.aligned import ALIGNED, WIDE, product
from headtohead.testing.tiny import tiny_config, tiny_data
from headtohead.training.evaluate import token_losses
from headtohead.training.loop import StackTraining
from headtohead.training.tensors import IGNORE_INDEX

ODD = WIDE + 9


def plain(x, weight, bias):
    return x @ weight if bias is None else x @ weight + bias


def factors(columns, table=False, members=2):
    generator = torch.Generator().manual_seed(7)

    def draw(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    x = draw(members, 6, 5).requires_grad_()
    weight = (draw(members, columns, 5) if table else draw(members, 5, columns)).requires_grad_()
    return x, weight, draw(members, 1, columns).requires_grad_()


def gradients(multiply, x, weight, bias, table):
    """Return the product and the gradients of a loss that weights each number differently."""
    out = multiply(x, weight.transpose(1, 2) if table else weight, bias)
    (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)).sum().backward()
    leaves = [leaf for leaf in (x, weight, bias) if leaf is not None]
    found = [out.detach(), *(leaf.grad for leaf in leaves)]
    for leaf in leaves:
        leaf.grad = None
    return found


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("table", [True, False], ids=["table of words", "map to words"])
@pytest.mark.parametrize("columns", [ODD, WIDE + ALIGNED, 9])
def test_product_and_gradients_equal_those_of_the_plain_product(columns, table, has_bias, members):
    x, weight, bias = factors(columns, table, members)
    bias = bias if has_bias else None
    found = gradients(product, x, weight, bias, table)
    wanted = gradients(plain, x, weight, bias, table)
    for result, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(result, expected, rtol=0, atol=1e-12)


def test_gradients_have_the_memory_layout_of_their_weights():
    """The fused optimizer requires equal layouts of weight and gradient."""
    for table in (True, False):
        x, weight, bias = factors(ODD, table)
        product(x, weight.transpose(1, 2) if table else weight, bias).sum().backward()
        assert weight.grad.is_contiguous()


@pytest.mark.parametrize(("columns", "apart"), [(ODD, WIDE + ALIGNED), (9, 9)])
def test_rows_with_many_columns_start_at_aligned_addresses(columns, apart):
    out = product(*factors(columns))
    assert out.shape == (2, 6, columns)
    assert out.stride() == (6 * apart, apart, 1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_losses_do_not_depend_on_the_memory_between_rows(smoothing):
    x, weight, bias = factors(ODD)
    labels = torch.randint(ODD, (2, 1, 6), generator=torch.Generator().manual_seed(1))
    labels[0, 0, 3] = IGNORE_INDEX
    logits = product(x, weight, bias)
    # Every row but the last of the twelve is followed by alignment padding.
    logits.detach().as_strided((11, ALIGNED - 9), (WIDE + ALIGNED, 1), ODD).fill_(torch.nan)
    found = token_losses(logits.unsqueeze(1), labels, smoothing)
    wanted = functional.cross_entropy(
        plain(x, weight, bias).flatten(0, 1),
        labels.flatten(),
        ignore_index=IGNORE_INDEX,
        reduction="none",
        label_smoothing=smoothing,
    ).view(labels.shape)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def trained(pieces, **model):
    """Train two members for some steps, and return the sums of losses and all weights."""
    config = tiny_config(quirks={"min_vocab_size": ODD}, **model)
    data = tiny_data(shared=model.get("tie_embeddings") == "all")
    training = StackTraining(config, [1, 2], data, torch.device("cpu"), num_microbatches=pieces)
    assert training.target_vocab_size == ODD
    for _, cut in zip(range(4), training._batches(), strict=False):
        training._step(cut)
    return training.loss_sums, training.model.state_dict()


@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize(
    "model", [{}, {"bias": False}, {"tie_embeddings": "output"}, {"tie_embeddings": "all", "dropout": 0.2}], ids=str
)
def test_training_equals_training_with_the_plain_product(model, pieces, monkeypatch):
    losses, weights = trained(pieces, **model)
    monkeypatch.setattr(aligned, "WIDE", 10**9)
    plain_losses, plain_weights = trained(pieces, **model)
    torch.testing.assert_close(losses, plain_losses, rtol=0, atol=1e-12)
    # Adam divides by gradients that are zero up to rounding.
    torch.testing.assert_close(weights, plain_weights, rtol=0, atol=1e-9)
