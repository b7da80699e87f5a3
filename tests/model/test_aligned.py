"""Products in aligned rows are products, with every gradient, for every way words are held."""

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
    """Return the product and every gradient of a loss that weighs each number differently."""
    out = multiply(x, weight.transpose(1, 2) if table else weight, bias)
    (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)).sum().backward()
    leaves = [one for one in (x, weight, bias) if one is not None]
    found = [out.detach(), *(one.grad for one in leaves)]
    for one in leaves:
        one.grad = None
    return found


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("table", [True, False], ids=["table of words", "map to words"])
@pytest.mark.parametrize("columns", [ODD, WIDE + ALIGNED, 9])
def test_product_and_gradients_are_those_of_the_plain_product(columns, table, has_bias, members):
    x, weight, bias = factors(columns, table, members)
    bias = bias if has_bias else None
    found = gradients(product, x, weight, bias, table)
    wanted = gradients(plain, x, weight, bias, table)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_gradients_lie_as_their_weights_do():
    """Else the optimizer, which reads both in order, would mix up what belongs together."""
    for table in (True, False):
        x, weight, bias = factors(ODD, table)
        product(x, weight.transpose(1, 2) if table else weight, bias).sum().backward()
        assert weight.grad.is_contiguous()


@pytest.mark.parametrize(("columns", "apart"), [(ODD, WIDE + ALIGNED), (9, 9)])
def test_rows_start_at_aligned_addresses_where_there_are_many_columns(columns, apart):
    out = product(*factors(columns))
    assert out.shape == (2, 6, columns)
    assert out.stride() == (6 * apart, apart, 1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_losses_do_not_see_what_lies_between_rows(smoothing):
    x, weight, bias = factors(ODD)
    labels = torch.randint(ODD, (2, 1, 6), generator=torch.Generator().manual_seed(1))
    labels[0, 0, 3] = IGNORE_INDEX
    logits = product(x, weight, bias)
    # Of twelve rows all but the last have something behind them.
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
    """Train two members some steps; return the sums of their losses, and all their weights."""
    config = tiny_config(quirks={"min_vocab_size": ODD}, **model)
    data = tiny_data(shared=model.get("tie_embeddings") == "all")
    training = StackTraining(config, [1, 2], data, torch.device("cpu"), num_microbatches=pieces)
    assert training.target_words == ODD
    for _, cut in zip(range(4), training._batches(), strict=False):
        training._step(cut)
    return training.loss_sums, training.model.state_dict()


@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize(
    "model", [{}, {"bias": False}, {"tie_embeddings": "output"}, {"tie_embeddings": "all", "dropout": 0.2}], ids=str
)
def test_training_is_that_of_the_plain_product(model, pieces, monkeypatch):
    losses, weights = trained(pieces, **model)
    monkeypatch.setattr(aligned, "WIDE", 10**9)
    plain_losses, plain_weights = trained(pieces, **model)
    torch.testing.assert_close(losses, plain_losses, rtol=0, atol=1e-12)
    # Adam divides by a gradient that may be 0 but for its rounding.
    torch.testing.assert_close(weights, plain_weights, rtol=0, atol=1e-9)
