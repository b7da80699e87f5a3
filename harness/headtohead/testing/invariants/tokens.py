"""How logits depend on tokens: never on later ones or on padding, on every visible one, and on their order.

Padding has no effect where every mask over source tokens hides padding, and every mask over target
tokens hides padding or the future, since padding follows the tokens. A batch of sentences of equal
length has no padding, so that its sentences give the same logits alone under every mask.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from headtohead.data.vocabulary import PAD, SPECIALS
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import LONGEST, SentenceBatch, Subject
from headtohead.testing.verdict import (
    LOGITS,
    Verdict,
    beyond,
    does_not_apply,
    logit_changes,
    outside,
    within,
    worst,
)

SHORTEST = 3
"""Length of the shortest source; with two tokens, reversal is the only reordering."""

CHANGED = ("member", "sentence", "changed token")
COORDINATES = ("member", "token", "coordinate")


@invariant("causality")
def future_tokens_never_change_earlier_logits(subject: Subject) -> Verdict:
    """Changing a target token changes no logits before it."""
    time = subject.sentences.target.shape[-1]
    earlier = torch.ones(time, time).tril(-1).bool().unsqueeze(-1)
    change = _changes(subject, "target", full_length=True).where(earlier, 0.0)
    if not subject.is_causal:
        return outside(
            "the decoder's mask does not hide the future",
            change,
            "later tokens change earlier logits",
        )
    return within(
        change, "change of logits before a changed target token", (*CHANGED, "position", "token")
    )


@invariant("source-reaches-logits")
def every_source_token_changes_the_logits(subject: Subject) -> Verdict:
    """Changing any source token changes the logits at some target position."""
    sentences = subject.sentences
    change = (
        _changes(subject, "source")
        .amax(-1)
        .where(sentences.target_nonpad.unsqueeze(2), 0.0)
        .amax(-1)
    )
    quantity = "smallest change of logits by changing a source token"
    return beyond(change.where(sentences.source_nonpad, torch.inf), quantity, CHANGED)


@invariant("target-reaches-logits")
def every_target_token_changes_the_logits_of_its_queries(subject: Subject) -> Verdict:
    """Changing a target token changes the logits at every position that attends to it."""
    visible, nonpad = subject.mask("decoder").transpose(-2, -1), subject.sentences.target_nonpad
    if "encoder" not in subject.roles:  # the part of the target, which follows the source
        positions = torch.arange(nonpad.shape[-1]) + subject.sentences.source_lengths.unsqueeze(-1)
        visible = _chosen(_chosen(visible, positions, -1), positions, -2)
    pairs = visible & nonpad.unsqueeze(-1) & nonpad.unsqueeze(-2)
    change = _changes(subject, "target").amax(-1).where(pairs, torch.inf)
    return beyond(
        change,
        "smallest change of logits by changing a visible target token",
        (*CHANGED, "position"),
    )


def _changes(
    subject: Subject, side: Literal["source", "target"], full_length: bool = False
) -> Tensor:
    """Return the changes of logits by each token of a side, ``[member, sentence, changed token, time, vocab]``.

    Padding is changed, too. With ``full_length``, padding of the target counts as tokens.
    """
    sentences, changes = subject.sentences, []
    time = getattr(sentences, side).shape[-1]
    first, vocab_size = len(SPECIALS), subject.vocab_sizes[0 if side == "source" else 1]
    for sentence in range(sentences.source.shape[1]):
        copies = sentences.map(
            partial(torch.index_select, dim=1, index=torch.full((time,), sentence))
        )
        if full_length:
            full = torch.full_like(copies.target_lengths, sentences.target.shape[-1])
            copies = replace(copies, target_lengths=full)
        ids = getattr(copies, side).clone()
        for position in range(time):
            ids[:, position, position] = first + (ids[:, position, position] - first + 1) % (
                vocab_size - first
            )
        changes.append(
            (subject.logits(copies) - subject.logits(replace(copies, **{side: ids}))).abs()
        )
    return torch.stack(changes, dim=1)


@invariant("pad-columns")
def more_padding_changes_no_logits(subject: Subject) -> Verdict:
    """Columns of padding added to source and target change no logits at non-padding positions."""
    if subject.only_length is not None:
        return does_not_apply(f"the decoder accepts exactly {subject.only_length} tokens")
    sentences = subject.sentences
    source, target = (
        functional.pad(ids, (0, 2), value=PAD) for ids in (sentences.source, sentences.target)
    )
    logits = subject.logits(replace(sentences, source=source, target=target))[
        :, :, : sentences.target.shape[-1]
    ]
    change = logit_changes(logits - subject.reference_logits, sentences.target_nonpad)
    return _if_padding_is_hidden(subject, change, "change of logits by added padding")


@invariant("pad-content")
def padding_ids_change_no_logits(subject: Subject) -> Verdict:
    """Other ids at padding positions change no logits at non-padding positions."""
    sentences = subject.sentences
    other = len(SPECIALS) + 1
    source = sentences.source.where(sentences.source_nonpad, other)
    target = sentences.target.where(sentences.target_nonpad, other)
    difference = (
        subject.logits(replace(sentences, source=source, target=target)) - subject.reference_logits
    )
    change = logit_changes(difference, sentences.target_nonpad)
    return _if_padding_is_hidden(
        subject, change, "change of logits by other ids at padding positions"
    )


@invariant("batch-of-one")
def a_batch_equals_its_sentences_alone(subject: Subject) -> Verdict:
    """A batch of N sentences gives the logits of N batches of one sentence."""
    full = ((LONGEST,) * len(subject.lengths[0]),) * len(subject.seeds)
    unpadded = _changes_alone(subject, subject.random_sentences(full))
    alone = within(
        unpadded, "difference between logits alone and in a batch without padding", LOGITS
    )
    if alone.state == "violated":
        return alone
    padded = _changes_alone(subject, subject.sentences)
    return _if_padding_is_hidden(subject, padded, "difference between logits alone and in a batch")


def _changes_alone(subject: Subject, sentences: SentenceBatch) -> Tensor:
    """Return the differences between the logits of each sentence alone and in its batch."""
    together = subject.logits(sentences)
    logits = torch.zeros_like(together)
    members, batch = sentences.source_lengths.shape
    lengths = torch.stack([sentences.source_lengths, sentences.target_lengths], -1)
    for sentence in range(batch):
        for source_time, target_length in lengths[:, sentence].unique(dim=0).tolist():
            # Members with sentences of these lengths; the model computes all members.
            own = (lengths[:, sentence] == torch.tensor([source_time, target_length])).all(-1)
            target_time = subject.only_length or target_length
            alone = SentenceBatch(
                sentences.source[:, sentence : sentence + 1, :source_time],
                torch.full((members, 1), source_time),
                sentences.target[:, sentence : sentence + 1, :target_time],
                torch.full((members, 1), target_length),
            )
            logits[own, sentence, :target_time] = subject.logits(alone)[own, 0]
    return logit_changes(logits - together, sentences.target_nonpad)


def _if_padding_is_hidden(subject: Subject, change: Tensor, quantity: str) -> Verdict:
    """Return a verdict on a change that must be zero, unless logits at non-padding positions depend on padding keys."""
    roles = []
    for role in subject.roles:
        # In self-attention, padding keys are later than every non-padding query.
        in_future = subject.attention(role).self_attention and subject.hides("future", role)
        is_used = role != "encoder" or subject.model.attends_to_source
        if is_used and not (in_future or subject.hides("padding", role)):
            roles.append(role)
    if roles:
        return outside(
            f"padding is visible in {', '.join(roles)}", change, f"there is a {quantity}"
        )
    return within(change, quantity, LOGITS)


@invariant("source-order")
def source_order_changes_logits_unless_the_variant_is_order_invariant(subject: Subject) -> Verdict:
    """Exchanging two source tokens changes the logits if and only if positions are encoded."""
    order = torch.arange(subject.sentences.source.shape[-1])
    order[:2] = order[:2].flip(0)
    return _reordered_source(
        subject,
        order.expand_as(subject.sentences.source),
        "exchanging source tokens 0 and 1",
        "order-invariant",
    )


@invariant("source-mirror")
def source_reversal_changes_logits_unless_the_encoding_is_symmetric(subject: Subject) -> Verdict:
    """Reversing the source changes the logits if and only if direction is encoded."""
    positions = torch.arange(subject.sentences.source.shape[-1]).expand_as(subject.sentences.source)
    lengths = subject.sentences.source_lengths.unsqueeze(-1)
    order = torch.where(positions < lengths, lengths - 1 - positions, positions)
    return _reordered_source(subject, order, "reversing the source", "mirror-invariant")


def _reordered_source(subject: Subject, order: Tensor, action: str, name: str) -> Verdict:
    """Return a verdict on the change of logits by reordering the tokens of every source.

    Args:
        subject: The subject under test.
        order: The original position of each token, ``[member, batch, time]``.
        action: The reordering in words.
        name: Property of an encoding that is invariant to the reordering.
    """
    if not subject.model.attends_to_source:
        return does_not_apply("the decoder does not attend to the encoder")
    batch = subject.sentences
    logits = subject.logits(replace(batch, source=batch.source.gather(-1, order)))
    change = logits - subject.reference_logits
    order_invariant = _invariant_sentences(subject, order, "order-invariant")
    unchanged = order_invariant | _invariant_sentences(subject, order, name)
    positions = batch.target_nonpad & unchanged.unsqueeze(-1)
    if bool((unchanged & ~order_invariant).any()) and not subject.hides("padding", "encoder"):
        predicted = f"{action}, and not the padding, changes logits at non-padding positions"
        return outside(
            "the encoder attends to padding", logit_changes(change, positions), predicted
        )
    verdicts = []
    if bool(unchanged.any()):
        quantity = f"change of logits of an invariant variant by {action}"
        verdicts.append(within(logit_changes(change, positions), quantity, LOGITS))
    if not bool(unchanged.all()):
        counted = batch.target_nonpad & (~unchanged & (batch.source_lengths >= SHORTEST)).unsqueeze(
            -1
        )
        counted_change = change.abs().amax(-1)
        if "encoder" not in subject.roles:  # a mask may hide the source from some target positions
            counted_change = (
                counted_change.where(batch.target_nonpad, 0.0)
                .amax(-1, keepdim=True)
                .expand_as(counted)
            )
        counted_change = counted_change.where(counted, torch.inf)
        verdicts.append(
            beyond(counted_change, f"smallest change of logits by {action}", LOGITS[:3])
        )
    return worst(*verdicts)


def _invariant_sentences(subject: Subject, order: Tensor, name: str) -> Tensor:
    """Return the sentences ``[member, batch]`` on which the variant is invariant to a reordering.

    Encodings, scores and masks must all be invariant. An order-invariant encoding has every other
    invariance, too.
    """
    roles = ("encoder", "cross") if "encoder" in subject.roles else ("decoder", "decoder")
    encodings = [subject.positional(role).properties for role in roles]
    by_modules = {name, "order-invariant"} & encodings[0] and "order-invariant" in encodings[1]
    if not by_modules or any(map(subject.depends_on_order, roles)):
        return torch.zeros(order.shape[:2], dtype=torch.bool)
    if "encoder" not in subject.roles:
        # In the first layer only the rows of target positions count, from the second on those of source tokens, too.
        mask, lengths = subject.mask("decoder"), subject.sentences.source_lengths.unsqueeze(-1)
        rest = torch.arange(order.shape[-1], mask.shape[-1]).expand(*order.shape[:2], -1)
        order = torch.cat([order, rest], -1)
        if subject.config.model.decoder_layers > 1:
            return (_chosen(_chosen(mask, order, -1), order, -2) == mask).all(-1).all(-1)
        of_target = torch.arange(mask.shape[-1]) >= lengths
        return ((_chosen(mask, order, -1) == mask) | ~of_target.unsqueeze(-1)).all(-1).all(-1)
    encoder, cross = subject.mask("encoder"), subject.mask("cross")
    same = _chosen(_chosen(encoder, order, -1), order, -2) == encoder
    same = same | ~subject.sentences.source_nonpad.unsqueeze(
        -1
    )  # outputs at padding are never used
    return same.all(-1).all(-1) & (_chosen(cross, order, -1) == cross).all(-1).all(-1)


def _chosen(mask: Tensor, positions: Tensor, axis: int) -> Tensor:
    """Return positions ``[member, batch, position]`` of an axis of a mask ``[member, batch, query, key]``."""
    shape = list(mask.shape)
    shape[axis] = positions.shape[-1]
    return mask.gather(axis, positions.unsqueeze(-2 if axis == -1 else -1).expand(shape))


@invariant("tokens-alone", scope="entry")
@torch.no_grad()
def tokens_are_processed_alone(subject: Subject) -> Verdict:
    """The output of a feed-forward network or a norm at a token depends on this token alone, not on its position."""
    modules, verdicts = {"feed-forward network": subject.feed_forward, "norm": subject.norm}, []
    for name, role in product(modules, subject.config.entries("norm")):
        module, x = modules[name](role), subject.activations(role)[0][:, 0]
        alone = torch.cat([module(token) for token in x.split(1, dim=1)], dim=1)
        for other, by in (
            (alone, "by other tokens"),
            (module(x.flip(1)).flip(1), "by the position of a token"),
        ):
            verdict = within(
                (module(x) - other).abs(), f"change of the output of a {name} {by}", COORDINATES
            )
            verdicts.append(verdict.in_role(role))
    return worst(*verdicts)


@invariant("norm-invariance", scope="entry")
@torch.no_grad()
def norms_are_invariant_as_declared(subject: Subject) -> Verdict:
    """A norm has the same output for a token times a positive number, or plus a number, exactly if it declares this.

    Tokens are large, so that ``norm_eps`` is negligible, but without the property small enough that a function that
    saturates still varies.
    """
    verdicts = []
    for role in subject.config.entries("norm"):
        norm, tokens = subject.norm(role), subject.activations(role)[0][:, 0]
        for name, factor, shift in (("scale-invariant", 3, 0), ("shift-invariant", 1, 1e6)):
            bounded, kind, size = (
                (within, name, 1e6) if name in norm.properties else (beyond, f"not {name}", 1e2)
            )
            x = size * tokens
            change = (norm(factor * x + shift) - norm(x)).abs().amax((1, 2))
            verdict = bounded(change, f"largest change of a norm that is {kind}", ("member",))
            verdicts.append(verdict.in_role(role))
    return worst(*verdicts)
