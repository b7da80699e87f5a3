"""Cross-entropy of the labels, and its gradients without a matrix of all logits.

The training loss is computed in chunks of positions: logits, softmax in place, minus 1 at the label, and the products
that give the gradients of decoder output, weight and bias. Only the logits of a chunk exist at a time, and no gradient
of logits is filled with zeros first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from headtohead.model.aligned import aligned_empty, factor, padded_rows
from headtohead.model.batch import IGNORE_INDEX, Batch
from headtohead.model.cuda import on_cuda
from headtohead.model.members import PerMember
from headtohead.model.precision import matmul_precision
from headtohead.model.transformer import Transformer

BITS_PER_NAT = math.log2(math.e)

NARROW = 16
"""Decoder width below which the gradient of the decoder is faster as a transposed product on a CPU."""

LARGE_VOCABULARY = 512
"""Vocabulary size from which logits are not computed at padding."""

CHUNK_LOGITS = 2**20
"""Number of logits of a chunk on a CPU: 4 MiB in float32, which processor caches hold."""

LOGITS_AT_ONCE = 2**26
"""Maximum number of logits at a time on a GPU."""


def token_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of every label, ``[member, batch, time]``, 0 for ``IGNORE_INDEX``."""
    losses = functional.cross_entropy(
        logits.flatten(0, 2), labels.flatten(), ignore_index=IGNORE_INDEX, reduction="none"
    )
    return losses.view(labels.shape)


def backward_loss(
    model: Transformer,
    batch: Batch,
    num_target_tokens: int,
    num_labels: Tensor,
    smoothing: float | PerMember,
    has_unlabelled: bool = False,
) -> Tensor:
    """Accumulate the gradients of all parameters, and return the mean loss of each member, ``[member]``.

    Args:
        model: The model.
        batch: Sentence pairs with labels.
        num_target_tokens: At least the largest number of labels of a member.
        num_labels: Divisor of each member's loss, ``[member]``.
        smoothing: Label smoothing.
        has_unlabelled: Whether tokens other than padding lack a label; no logits are computed there.
    """
    with matmul_precision(model):
        hidden, labels = model.hidden(batch), batch.labels
    weight, bias = model.output_map
    precision = torch.bfloat16 if model.config.train.precision == "bfloat16" else None
    if has_unlabelled or weight.shape[-1] >= LARGE_VOCABULARY:
        if precision is not None and hidden.device.type == "cpu":
            num_target_tokens = min(padded_rows(num_target_tokens), labels[0].numel())
        one_row = hidden.flatten(1, 2).unsqueeze(1), labels.flatten(1).unsqueeze(1)
        hidden, labels = label_positions(*one_row, num_target_tokens)
    hidden = hidden.flatten(1, 2)
    config = model.config
    extra = precision, config.train.z_loss, config.model.logit_softcap
    loss = loss_gradients(hidden, weight, bias, labels.flatten(1), num_labels, smoothing, *extra)
    # The gradient of the sum: each member's gradient is that of its own loss.
    pairs = ((hidden, loss.hidden), (weight, loss.weight), (bias, loss.bias))
    roots = [
        (tensor, gradient)
        for tensor, gradient in pairs
        if tensor is not None and gradient is not None
    ]
    torch.autograd.backward([tensor for tensor, _ in roots], [gradient for _, gradient in roots])
    return loss.losses


def label_positions(hidden: Tensor, labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Select the positions with a label, ``count`` per row; positions without a label fill the rest.

    Args:
        hidden: ``[member, row, time, d_model]``.
        labels: ``[member, row, time]``.
        count: At least the largest number of labels of a row.

    Returns:
        ``[member, row, count, d_model]`` and ``[member, row, count]``, in the order of the positions.
    """
    order = (labels == IGNORE_INDEX).to(torch.uint8).argsort(dim=2, stable=True)[:, :, :count]
    index = order.unsqueeze(-1).expand(-1, -1, -1, hidden.shape[-1])
    return hidden.gather(2, index), labels.gather(2, order)


class LossGradients(NamedTuple):
    """The mean loss of each member, ``[member]``, and the gradients of their sum; None where not required."""

    losses: Tensor
    hidden: Tensor | None
    weight: Tensor | None
    bias: Tensor | None


@torch.no_grad()
def loss_gradients(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    num_labels: Tensor,
    smoothing: float | PerMember = 0.0,
    precision: torch.dtype | None = None,
    z_loss: float = 0.0,
    softcap: float | None = None,
) -> LossGradients:
    """Return mean token losses and their gradients.

    The loss of a position with label y is ``logsumexp(x) - (1 - s)·x[y] - s·mean(x)`` with logits x and label
    smoothing s, as in ``torch.nn.CrossEntropyLoss``; positions with ``IGNORE_INDEX`` have none. ``z·logsumexp(x)²`` is
    added (Chowdhery et al. 2022, arXiv:2204.02311, section 5).

    Args:
        hidden: Output of the decoder, ``[member, position, d_model]``.
        weight: ``[member, d_model, vocab]``, a view of a tied embedding table included.
        bias: ``[member, 1, vocab]`` or None.
        labels: ``[member, position]``.
        num_labels: Divisor of each member's loss, ``[member]``.
        smoothing: Label smoothing.
        precision: Type of the factors of the products; softmax and losses keep the type of ``hidden``.
        z_loss: z.
        softcap: c of logits ``c·tanh(x/c)``, or None.
    """
    dtype = precision or hidden.dtype
    vocab = weight.shape[-1]
    columns = factor(weight, dtype)
    index = labels.clamp(min=0).unsqueeze(-1)
    shares = ((labels != IGNORE_INDEX) / num_labels.unsqueeze(-1)).to(hidden.dtype).unsqueeze(-1)
    smooth = (
        smoothing.along(hidden)
        if isinstance(smoothing, PerMember)
        else hidden.new_full((1, 1, 1), smoothing)
    )
    smooths = isinstance(smoothing, PerMember) or smoothing != 0
    gradients = LossGradients(
        hidden.new_zeros(len(hidden)),
        torch.empty_like(hidden) if hidden.requires_grad else None,
        torch.zeros_like(weight)
        if weight.requires_grad
        else None,  # in its layout: a tied table is transposed
        torch.zeros_like(bias) if bias is not None and bias.requires_grad else None,
    )
    memory = None
    for members, rows in _chunks(hidden, vocab):
        x, label, share = hidden[members, rows], index[members, rows], shares[members, rows]
        if memory is None:  # the first chunk is the largest
            memory = aligned_empty(hidden, (len(x), x.shape[1], vocab), dtype)
        # Logits in bits: on an AMD processor, exp takes three times as long as exp2 (benchmarks/results.md).
        scaled = (x * BITS_PER_NAT).to(dtype)
        logits = torch.bmm(scaled, columns[members], out=memory[: len(x), : x.shape[1]]).to(
            hidden.dtype
        )
        if bias is not None:
            logits.add_(bias[members], alpha=BITS_PER_NAT)
        if softcap is not None:
            bound = logits.mul_(1 / (softcap * BITS_PER_NAT)).tanh_()
            slope = 1 - bound.square()
            logits = bound.mul_(softcap * BITS_PER_NAT)
        at_label = logits.gather(2, label)
        if smooths:
            own_smooth = smooth[members] if len(smooth) > 1 else smooth
            at_label = torch.lerp(at_label, logits.mean(-1, keepdim=True), own_smooth)
        largest = logits.amax(-1, keepdim=True)
        logits -= largest
        exponentials = logits.exp2_()
        total = exponentials.sum(-1, keepdim=True)
        log_total = total.log2() + largest
        bits = (log_total - at_label) * share
        gradients.losses[members].add_(bits.sum((1, 2)), alpha=1 / BITS_PER_NAT)
        if z_loss:
            log_total /= BITS_PER_NAT
            gradients.losses[members].add_((log_total.square() * share).sum((1, 2)), alpha=z_loss)
            exponentials *= 1 + 2 * z_loss * log_total
        # The gradient of the logits is (softmax - target)·share; total and share are factored out of the products.
        if smooths:
            exponentials -= total * (own_smooth / vocab)
            exponentials.scatter_add_(2, label, total * (own_smooth - 1))
        else:
            exponentials.scatter_add_(2, label, -total)
        if softcap is not None:
            exponentials *= slope
        scale = share / total
        delta = exponentials.to(dtype)
        if gradients.hidden is not None:
            own = columns[members]
            # For narrow decoders, the transposed product is up to twice as fast.
            if own.shape[1] < NARROW:
                product = torch.bmm(own, delta.transpose(1, 2)).transpose(1, 2)
            else:
                product = torch.bmm(delta, own.transpose(1, 2))
            gradients.hidden[members, rows] = product * scale
        if gradients.weight is not None:
            _add_product(gradients.weight[members], (x * scale).to(dtype), delta)
        if gradients.bias is not None:
            gradients.bias[members].baddbmm_(scale.transpose(1, 2), exponentials)
    return gradients


def _chunks(hidden: Tensor, vocab: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices of members and positions: whole members if their logits are few, else positions of a member.

    The gradient of a weight is read and written once per chunk, so a chunk has at least 2 · d_model positions.
    """
    members, positions, width = hidden.shape
    limit = LOGITS_AT_ONCE if on_cuda(hidden) else CHUNK_LOGITS
    together = max(1, min(members, limit // (positions * vocab)))
    rows = min(positions, max(limit // (together * vocab), 2 * width))
    for first in range(0, members, together):
        for start in range(0, positions, rows):
            yield slice(first, first + together), slice(start, start + rows)


def _add_product(gradient: Tensor, x: Tensor, delta: Tensor) -> None:
    """Add ``xᵀ @ delta``, computed in the memory layout of the gradient."""
    left, right = x.transpose(1, 2), delta
    if not gradient.is_contiguous():
        gradient, left, right = gradient.transpose(1, 2), delta.transpose(1, 2), x
    if left.dtype == gradient.dtype:
        gradient.baddbmm_(left, right)
    else:
        gradient += torch.bmm(left, right)
