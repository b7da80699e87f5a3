"""Cross-entropy of the labels, and its gradients without a matrix of all logits.

The training loss is computed in chunks of positions: logits, softmax in place, minus 1 at the label, and the products
that give the gradients of decoder output, weight and bias. Only the logits of a chunk exist at a time, and no gradient
of logits is filled with zeros first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from headtohead.model.aligned import MANY_ROWS, aligned_empty, factor, padded_rows
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

BLOCK_LOGITS = 2**18
"""Number of logits of a block on a CPU: 1 MiB in float32, which the second cache of a core holds."""

LOGITS_AT_ONCE = 2**26
"""Number of logits of a chunk on a GPU."""


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
    """Add the gradients of the training loss to all parameters, and return the loss of each member, ``[member]``.

    A member's loss is the sum over its labels divided by its entry of ``num_labels``, with label smoothing and the
    ``z_loss`` and ``logit_softcap`` of the configuration. The gradient is that of the sum over members, so each
    member's gradient is that of its own loss.

    Args:
        model: The model.
        batch: Sentence pairs with labels.
        num_target_tokens: At least the largest number of labels of a member, and at least 1; labels beyond it would be
            lost.
        num_labels: Divisor of each member's loss, ``[member]``, at least 1; the number of its labels in the whole
            batch, of which ``batch`` may be a microbatch.
        smoothing: Label smoothing.
        has_unlabelled: Whether tokens other than padding lack a label. If so, or from `LARGE_VOCABULARY` logits on,
            logits are computed only at ``num_target_tokens`` positions of each member, those with a label first. In
            bfloat16 on a CPU, positions of zeros without a label follow, up to
            `padded_rows`.

    Raises:
        HeadToHeadError: If a sequence or the batch exceeds the maximum of an encoding or an attention, or a plugin
            returns a tensor of a wrong shape.
    """
    with matmul_precision(model):
        hidden = model.hidden(batch)
    labels = batch.labels
    weight, bias = model.output_map
    config = model.config
    precision = torch.bfloat16 if config.train.precision == "bfloat16" else None
    selects_labelled = has_unlabelled or weight.shape[-1] >= LARGE_VOCABULARY
    if selects_labelled:
        hidden = hidden.flatten(1, 2).unsqueeze(1)
        labels = labels.flatten(1).unsqueeze(1)
        hidden, labels = label_positions(hidden, labels, num_target_tokens)
    hidden = hidden.flatten(1, 2)
    labels = labels.flatten(1)
    if precision is not None and hidden.device.type == "cpu":
        added = padded_rows(labels.shape[1]) - labels.shape[1]
        hidden = functional.pad(hidden, (0, 0, 0, added))
        labels = functional.pad(labels, (0, added), value=IGNORE_INDEX)
    terms = LossTerms(smoothing, precision, config.train.z_loss, config.model.logit_softcap)
    loss = loss_gradients(hidden, weight, bias, labels, num_labels, terms)
    tensors, gradients = [], []
    for tensor, gradient in ((hidden, loss.hidden), (weight, loss.weight), (bias, loss.bias)):
        if tensor is not None and gradient is not None:
            tensors.append(tensor)
            gradients.append(gradient)
    _GivenGradients.apply(gradients, *tensors).backward()  # type: ignore[no-untyped-call]
    return loss.losses


class _GivenGradients(torch.autograd.Function):
    """A scalar whose gradient with respect to tensors is given.

    With given gradients, ``torch.autograd.backward`` imports torch's compiler, which takes half a second.
    """

    @staticmethod
    def forward(context: Any, gradients: Sequence[Tensor], *tensors: Tensor) -> Tensor:
        """Return 0; the arguments after the context are the gradients and their tensors."""
        context.gradients = gradients
        return tensors[0].new_zeros(())

    @staticmethod
    def backward(context: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        """Return the given gradients."""
        return None, *context.gradients


def label_positions(hidden: Tensor, labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return ``count`` positions of each row, those with a label first; positions without a label fill the rest.

    Args:
        hidden: ``[member, row, time, d_model]``.
        labels: ``[member, row, time]``.
        count: At least the largest number of labels of a row; further labels would be lost.

    Returns:
        ``[member, row, count, d_model]`` and ``[member, row, count]``, each kind in the order of the positions; with
        fewer than ``count`` positions, all of them.
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


@dataclass(frozen=True)
class LossTerms:
    """What the training loss has besides the cross-entropy of the labels.

    Args:
        smoothing: Label smoothing.
        precision: Type of the factors of the products; softmax and losses keep the type of the decoder's output.
        z_loss: z.
        softcap: c of logits ``c·tanh(x/c)``, or None.
    """

    smoothing: float | PerMember = 0.0
    precision: torch.dtype | None = None
    z_loss: float = 0.0
    softcap: float | None = None

    def smoothing_like(self, x: Tensor) -> Tensor | None:
        """Return the label smoothing with the dtype and device of ``x``, ``[member or 1, 1, 1]``; None if it is 0."""
        if isinstance(self.smoothing, PerMember):
            return self.smoothing.broadcast_to(x)
        if self.smoothing == 0:
            return None
        return x.new_full((1, 1, 1), self.smoothing)


CROSS_ENTROPY = LossTerms()


class _Targets(NamedTuple):
    """Label and share in the loss of each position, ``[member, position, 1]``; label smoothing as `smoothing_like`."""

    label: Tensor
    share: Tensor
    smooth: Tensor | None

    def part(self, members: slice, positions: slice) -> _Targets:
        """Return the targets of some positions of some members."""
        smooth = self.smooth
        if smooth is not None and len(smooth) > 1:
            smooth = smooth[members]
        return _Targets(self.label[members, positions], self.share[members, positions], smooth)


@torch.no_grad()
def loss_gradients(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    num_labels: Tensor,
    terms: LossTerms = CROSS_ENTROPY,
) -> LossGradients:
    """Return the mean loss of each member, and the gradients of decoder output, weight and bias.

    The loss of a position with label y is ``logsumexp(x) - (1 - s)·x[y] - s·mean(x) + z·logsumexp(x)²``. x are the
    logits after the soft cap, if there is one; s is the label smoothing, as in ``torch.nn.CrossEntropyLoss``; z is the
    factor of the z-loss (Chowdhery et al. 2022, arXiv:2204.02311, section 5). Positions with ``IGNORE_INDEX`` have no
    loss. Gradients are None for tensors that require none; no tensor's ``grad`` is changed, and autograd records
    nothing.

    Args:
        hidden: Output of the decoder, ``[member, position, d_model]``.
        weight: ``[member, d_model, vocab]``, a view of a tied embedding table included.
        bias: ``[member, 1, vocab]`` or None.
        labels: ``[member, position]``.
        num_labels: Divisor of each member's loss, ``[member]``, above 0.
        terms: Label smoothing, z-loss and soft cap.
    """
    dtype = terms.precision or hidden.dtype
    vocab = weight.shape[-1]
    columns = factor(weight, dtype)
    shares = ((labels != IGNORE_INDEX) / num_labels.unsqueeze(-1)).to(hidden.dtype).unsqueeze(-1)
    targets = _Targets(labels.clamp(min=0).unsqueeze(-1), shares, terms.smoothing_like(hidden))
    gradients = _zero_gradients(hidden, weight, bias)
    memory = None
    for members, rows in _chunks(hidden, vocab, dtype):
        x = hidden[members, rows]
        if memory is None:  # the first chunk is the largest
            memory = aligned_empty(hidden, (len(x), x.shape[1], vocab), dtype)
        # Logits in bits: on an AMD processor, exp takes three times as long as exp2 (benchmarks/results.md).
        scaled = (x * BITS_PER_NAT).to(dtype)
        logits = torch.bmm(scaled, columns[members], out=memory[: len(x), : x.shape[1]])
        scales = []
        for block in _blocks(logits, hidden.dtype):
            positions = slice(rows.start + block.start, rows.start + block.stop)
            block_targets = targets.part(members, positions)
            scale = _replace_logits(
                logits[:, block], block_targets, bias, gradients, members, terms
            )
            scales.append(scale)
        scale = scales[0]
        if len(scales) > 1:
            scale = torch.cat(scales, dim=1)
        _add_gradients(gradients, (members, rows), x, columns[members], logits, scale)
    return gradients


def _blocks(logits: Tensor, dtype: torch.dtype) -> Iterator[slice]:
    """Yield slices of positions that cover ``logits [member, position, vocab]``.

    If logits are converted to ``dtype`` on a CPU, a block fits into the cache of a core. The operations that follow
    read and write the converted logits of one block at a time.
    """
    members, num_positions, vocab = logits.shape
    positions = num_positions
    if logits.dtype != dtype and not on_cuda(logits):
        positions = max(1, BLOCK_LOGITS // (members * vocab))
    for start in range(0, num_positions, positions):
        yield slice(start, min(start + positions, num_positions))


def _replace_logits(
    logits: Tensor,
    targets: _Targets,
    bias: Tensor | None,
    gradients: LossGradients,
    members: slice,
    terms: LossTerms,
) -> Tensor:
    """Replace logits by their gradients, add the losses and the gradient of the bias, and return the missing factor.

    Args:
        logits: In bits and without bias, in the type of the products, ``[member, position, vocab]``; overwritten by
            their gradients divided by the result.
        targets: Those of the positions.
        bias: That of all members, ``[member, 1, vocab]``, or None.
        gradients: Those of all members; losses and bias are changed in place.
        members: The members of the logits.
        terms: Label smoothing, z-loss and soft cap.

    Returns:
        ``[member, position, 1]``. Its product with ``logits`` is left to the smaller products that follow.
    """
    exact = logits.to(targets.share.dtype)
    if bias is not None:
        exact.add_(bias[members], alpha=BITS_PER_NAT)
    slope = None
    if terms.softcap is not None:
        slope = _cap(exact, terms.softcap * BITS_PER_NAT)
    total = _add_losses(gradients.losses[members], exact, targets, terms.z_loss)
    if slope is not None:
        exact *= slope
    scale = targets.share / total
    if gradients.bias is not None:
        gradients.bias[members].baddbmm_(scale.transpose(1, 2), exact)
    if exact is not logits:
        logits.copy_(exact)
    return scale


def _cap(logits: Tensor, bound: float) -> Tensor:
    """Replace logits x by ``bound·tanh(x / bound)``, in place, and return the derivative of the result."""
    logits.mul_(1 / bound).tanh_()
    slope = 1 - logits.square()
    logits.mul_(bound)
    return slope


def _zero_gradients(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> LossGradients:
    """Return losses of 0, and memory for the gradients that are required."""
    gradient = torch.empty_like(hidden) if hidden.requires_grad else None
    of_weight = None
    if weight.requires_grad:
        of_weight = torch.zeros_like(weight)  # in its layout: a tied table is transposed
    of_bias = None
    if bias is not None and bias.requires_grad:
        of_bias = torch.zeros_like(bias)
    return LossGradients(hidden.new_zeros(len(hidden)), gradient, of_weight, of_bias)


def _add_losses(losses: Tensor, logits: Tensor, targets: _Targets, z: float) -> Tensor:
    """Add the losses of logits to ``losses``, and replace the logits by their gradients times ``total / share``.

    Args:
        losses: ``[member]``, changed in place.
        logits: In bits, that is, times log2(e), ``[member, position, vocab]``; overwritten.
        targets: Those of the positions.
        z: Factor of the z-loss.

    Returns:
        ``total``, the sum of ``exp(x - max(x))`` over the logits x of a position, ``[member, position, 1]``.
    """
    label, share, smooth = targets
    vocab = logits.shape[-1]
    at_label = logits.gather(2, label)
    if smooth is not None:
        at_label = torch.lerp(at_label, logits.mean(-1, keepdim=True), smooth)
    largest = logits.amax(-1, keepdim=True)
    logits -= largest
    exponentials = logits.exp2_()
    total = exponentials.sum(-1, keepdim=True)
    log_total = total.log2() + largest
    bits = (log_total - at_label) * share
    losses.add_(bits.sum((1, 2)), alpha=1 / BITS_PER_NAT)
    if z:
        log_total /= BITS_PER_NAT
        losses.add_((log_total.square() * share).sum((1, 2)), alpha=z)
        exponentials *= 1 + 2 * z * log_total
    # The gradient of the logits is (softmax - target)·share.
    if smooth is None:
        exponentials.scatter_add_(2, label, -total)
    else:
        exponentials -= total * (smooth / vocab)
        exponentials.scatter_add_(2, label, total * (smooth - 1))
    return total


def _add_gradients(
    gradients: LossGradients,
    chunk: tuple[slice, slice],
    x: Tensor,
    columns: Tensor,
    delta: Tensor,
    scale: Tensor,
) -> None:
    """Set or add the gradients of decoder output and weight that follow from those of a chunk's logits.

    Those of the decoder output are set, since each position is in one chunk; the others are sums over chunks.

    Args:
        gradients: Those of all members, changed in place; None is left out.
        chunk: Members and positions of the chunk.
        x: Its decoder output, ``[member, position, d_model]``.
        columns: Weights of its members, in the type of the products.
        delta: Gradients of its logits divided by ``scale``, ``[member, position, vocab]``, in the same type.
        scale: Factor of each position, ``[member, position, 1]``.
    """
    members, _ = chunk
    if gradients.hidden is not None:
        # For narrow decoders, the transposed product is up to twice as fast.
        if columns.shape[1] < NARROW:
            product = torch.bmm(columns, delta.transpose(1, 2)).transpose(1, 2)
        else:
            product = torch.bmm(delta, columns.transpose(1, 2))
        gradients.hidden[chunk] = product * scale
    if gradients.weight is not None:
        _add_product(gradients.weight[members], (x * scale).to(delta.dtype), delta)


def max_chunk_logits(width: int, vocab: int, *, is_cuda: bool) -> int:
    """Return the maximum number of logits in float32 of a chunk of the training loss, over all its members.

    The gradient of the output weight, ``[width, vocab]``, is read and written once per chunk. With at least
    2 · ``width`` positions, the logits of a chunk are twice as many numbers. So a chunk of one member may have as many
    positions, even if their logits exceed the limit of the device. In bfloat16 on a CPU, `_chunks` takes twice as many.

    Args:
        width: Width of the decoder's output, d_model.
        vocab: Number of logits of a position.
        is_cuda: Whether the model is on a GPU.
    """
    return max(_chunk_limit(is_cuda), 2 * width * vocab)


def _chunk_limit(is_cuda: bool) -> int:
    return LOGITS_AT_ONCE if is_cuda else CHUNK_LOGITS


def _chunks(hidden: Tensor, vocab: int, dtype: torch.dtype) -> Iterator[tuple[slice, slice]]:
    """Yield slices of members and of positions that cover all positions of all members, the largest chunk first.

    A chunk has whole members, as many as the limit of the device allows. If it allows not even one, a chunk has some
    positions of one member: at most `max_chunk_logits`, and at least one position.

    On a CPU, a chunk in a type of half the size has twice as many logits. If it has a part of a member, its number of
    positions is a multiple of `MANY_ROWS`.

    Args:
        hidden: ``[member, position, d_model]``.
        vocab: Number of logits of a position.
        dtype: Type of the products.

    Raises:
        ZeroDivisionError: Without a position.
    """
    num_members, num_positions, width = hidden.shape
    is_cuda = on_cuda(hidden)
    more = multiple = 1
    if dtype != hidden.dtype and not is_cuda:
        more = hidden.element_size() // dtype.itemsize
        multiple = MANY_ROWS
    logits_of_member = num_positions * vocab
    members = max(1, min(num_members, more * _chunk_limit(is_cuda) // logits_of_member))
    positions = num_positions
    if members == 1:
        limit = more * max_chunk_logits(width, vocab, is_cuda=is_cuda) // vocab
        positions = min(num_positions, max(limit // multiple, 1) * multiple)
    for first in range(0, num_members, members):
        for start in range(0, num_positions, positions):
            yield slice(first, first + members), slice(start, start + positions)


def _add_product(gradient: Tensor, x: Tensor, delta: Tensor) -> None:
    """Add ``xᵀ @ delta``, computed in the memory layout of the gradient."""
    left, right = x.transpose(1, 2), delta
    if not gradient.is_contiguous():
        gradient, left, right = gradient.transpose(1, 2), delta.transpose(1, 2), x
    if left.dtype == gradient.dtype:
        gradient.baddbmm_(left, right)
    else:
        gradient += torch.bmm(left, right)
