"""The chunked loss and its gradients equal those of torch with autograd; aligned products equal plain products."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from headtohead.model import loss
from headtohead.model.aligned import ALIGNED, WIDE, product
from headtohead.model.batch import IGNORE_INDEX
from headtohead.model.loss import LossTerms, loss_gradients, token_losses
from headtohead.model.members import PerMember

ODD = WIDE + 9
CHUNKS = {
    "chunks of d_model positions": 1,
    "chunks of 5 positions": 5 * 3 * ODD,
    "a single chunk": 2**22,
}


def inputs(
    vocab: int, tied: bool, members: int = 3
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return decoder output, weight or tied table, bias, labels and numbers of labels."""
    generator = torch.Generator().manual_seed(7)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    labels = torch.randint(vocab, (members, 11), generator=generator)
    labels[:, 2] = labels[0, 4:] = IGNORE_INDEX
    table = random(members, vocab, 4) if tied else random(members, 4, vocab)
    return (
        random(members, 11, 4),
        table,
        random(members, 1, vocab),
        labels,
        (labels >= 0).sum(1).double(),
    )


@pytest.mark.parametrize("chunk", CHUNKS.values(), ids=CHUNKS)
@pytest.mark.parametrize(
    "smoothing", [0.0, 0.1, PerMember([0.0, 0.1, 0.3])], ids=["plain", "smoothed", "per member"]
)
@pytest.mark.parametrize("tied", [False, True], ids=["lm_head", "tied table"])
@pytest.mark.parametrize("vocab", [7, ODD])
def test_losses_and_gradients_equal_those_of_torch(
    vocab: int,
    tied: bool,
    smoothing: float | PerMember,
    chunk: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loss, "CHUNK_LOGITS", chunk)
    hidden, table, bias, labels, num_labels = inputs(vocab, tied)
    weight = table.transpose(1, 2) if tied else table
    result = loss_gradients(hidden, weight, bias, labels, num_labels, LossTerms(smoothing))
    each = smoothing.values if isinstance(smoothing, PerMember) else [smoothing] * 3
    logits = hidden @ weight + bias
    expected = torch.stack(
        [
            functional.cross_entropy(own, label, label_smoothing=value, ignore_index=IGNORE_INDEX)
            for own, label, value in zip(logits, labels, each, strict=True)
        ]
    )
    expected.sum().backward()
    assert result.weight is not None
    pairs = [
        (result.losses, expected),
        (result.hidden, hidden.grad),
        (result.weight.transpose(1, 2) if tied else result.weight, table.grad),
        (result.bias, bias.grad),
    ]
    for found, wanted in pairs:
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("z_loss", "softcap"), [(0.3, None), (0.0, 2.0), (0.3, 2.0)])
def test_z_loss_and_soft_caps_equal_those_of_autograd(
    z_loss: float, softcap: float | None, smoothing: float
) -> None:
    hidden, weight, bias, labels, num_labels = inputs(7, False)
    terms = LossTerms(smoothing, z_loss=z_loss, softcap=softcap)
    result = loss_gradients(hidden, weight, bias, labels, num_labels, terms)
    logits = hidden @ weight + bias
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    for member in range(3):
        chosen = labels[member] != IGNORE_INDEX
        own = logits[member, chosen]
        expected = functional.cross_entropy(own, labels[member, chosen], label_smoothing=smoothing)
        expected = expected + z_loss * own.logsumexp(-1).square().mean()
        torch.testing.assert_close(result.losses[member], expected, rtol=0, atol=1e-13)
        expected.backward(retain_graph=True)
    for found, leaf in zip(
        (result.hidden, result.weight, result.bias), (hidden, weight, bias), strict=True
    ):
        torch.testing.assert_close(found, leaf.grad, rtol=0, atol=1e-13)


def test_gradients_have_the_memory_layout_of_their_weights() -> None:
    """The fused optimizer requires equal layouts of weight and gradient."""
    for tied in (True, False):
        hidden, table, _, labels, num_labels = inputs(ODD, tied)
        gradient = loss_gradients(
            hidden, table.transpose(1, 2) if tied else table, None, labels, num_labels
        ).weight
        assert gradient is not None
        assert (gradient.transpose(1, 2) if tied else gradient).is_contiguous()


def test_frozen_tensors_have_no_gradient() -> None:
    hidden, weight, bias, labels, num_labels = inputs(7, False)
    result = loss_gradients(
        hidden, weight.requires_grad_(False), bias.requires_grad_(False), labels, num_labels
    )
    assert (result.weight, result.bias) == (None, None)
    assert result.hidden is not None


def test_large_logits_neither_overflow_nor_lose_the_loss_of_improbable_labels() -> None:
    hidden = torch.tensor([[[1e4], [1e4]]])
    weight = torch.tensor([[[1.0, -1.0, 0.0]]])
    labels = torch.tensor([[1, 0]])
    losses = loss_gradients(
        hidden.requires_grad_(), weight, None, labels, torch.tensor([2.0])
    ).losses
    torch.testing.assert_close(losses, torch.tensor([1e4]))


def test_bfloat16_products_give_losses_and_gradients_near_those_of_float32() -> None:
    hidden, weight, bias, labels, num_labels = (
        value.float().detach().requires_grad_() if value.is_floating_point() else value
        for value in inputs(ODD, False)
    )
    exact = loss_gradients(hidden, weight, bias, labels, num_labels)
    rounded = loss_gradients(
        hidden, weight, bias, labels, num_labels, LossTerms(precision=torch.bfloat16)
    )
    for name in ("losses", "hidden", "weight", "bias"):
        found, wanted = getattr(rounded, name), getattr(exact, name)
        assert found.dtype == torch.float32
        assert float((found - wanted).norm() / wanted.norm()) < 0.01
        assert not torch.equal(found, wanted)


def test_padding_has_no_loss() -> None:
    logits = torch.randn(
        2, 3, 4, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    labels = torch.tensor(
        [[4, 5, 3, IGNORE_INDEX], [6, 3, IGNORE_INDEX, IGNORE_INDEX], [7, 8, 4, 3]]
    ).expand(2, 3, 4)
    losses = token_losses(logits, labels)
    assert (losses[labels == IGNORE_INDEX] == 0).all()
    chosen = logits.log_softmax(-1).gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(
        losses, (-chosen).where(labels != IGNORE_INDEX, 0.0), rtol=0, atol=1e-12
    )


def factors(columns: int, tied: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Return decoder output, weight and bias."""
    hidden, table, bias, *_ = (value.detach() for value in inputs(columns, tied))
    return hidden, table.transpose(1, 2) if tied else table, bias


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("table", [True, False], ids=["tied table", "lm_head"])
@pytest.mark.parametrize("columns", [ODD, WIDE + ALIGNED, 9])
def test_products_with_and_without_gradients_are_equal(
    columns: int, table: bool, has_bias: bool
) -> None:
    x, weight, bias = factors(columns, table)
    shift = bias if has_bias else None
    expected = x @ weight + (bias if has_bias else 0)
    torch.testing.assert_close(
        product(x.requires_grad_(), weight, shift), expected, rtol=0, atol=1e-12
    )
    with torch.no_grad():
        torch.testing.assert_close(product(x, weight, shift), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("columns", "apart"), [(ODD, WIDE + ALIGNED), (9, 9)])
@torch.no_grad()
def test_rows_with_many_columns_start_at_aligned_addresses(columns: int, apart: int) -> None:
    out = product(*factors(columns))
    assert out.shape == (3, 11, columns)
    assert out.stride() == (11 * apart, apart, 1)


@torch.no_grad()
def test_losses_do_not_depend_on_the_memory_between_rows() -> None:
    x, weight, bias = factors(ODD)
    labels = torch.randint(ODD, (3, 1, 11), generator=torch.Generator().manual_seed(1))
    labels[0, 0, 3] = IGNORE_INDEX
    logits = product(x, weight, bias)
    # Every row but the last is followed by alignment padding.
    logits.as_strided((32, ALIGNED - 9), (WIDE + ALIGNED, 1), ODD).fill_(torch.nan)
    expected = token_losses((x @ weight + bias).unsqueeze(1), labels)
    torch.testing.assert_close(
        token_losses(logits.unsqueeze(1), labels), expected, rtol=0, atol=1e-12
    )
