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
from headtohead.testing.subject import LONGEST, SentenceBatch, Subject, next_words
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
    change = _changes(subject, "source").amax(-1)
    change = change.where(sentences.target_nonpad.unsqueeze(2), 0.0)
    largest = change.amax(-1).where(sentences.source_nonpad, torch.inf)
    return beyond(largest, "smallest change of logits by changing a source token", CHANGED)


@invariant("target-reaches-logits")
def every_target_token_changes_the_logits_of_its_queries(subject: Subject) -> Verdict:
    """Changing a target token changes the logits at every position that attends to it."""
    visible = subject.mask("decoder").transpose(-2, -1)
    nonpad = subject.sentences.target_nonpad
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
    sentences = subject.sentences
    source_size, target_size = subject.vocab_sizes
    vocab_size = source_size if side == "source" else target_size
    members, batch, time = getattr(sentences, side).shape
    # Each sentence occurs once per token; in copy i, token i changes.
    copies = sentences.map(partial(torch.repeat_interleave, repeats=time, dim=1))
    if full_length:
        full = torch.full_like(copies.target_lengths, sentences.target.shape[-1])
        copies = replace(copies, target_lengths=full)
    ids = getattr(copies, side).clone()
    rows = torch.arange(batch * time)
    positions = torch.arange(time).repeat(batch)
    ids[:, rows, positions] = next_words(ids[:, rows, positions], vocab_size)
    change = (subject.logits(copies) - subject.logits(replace(copies, **{side: ids}))).abs()
    return change.view(members, batch, time, *change.shape[2:])


@invariant("pad-columns")
def more_padding_changes_no_logits(subject: Subject) -> Verdict:
    """Columns of padding added to source and target change no logits at non-padding positions."""
    if subject.only_length is not None:
        return does_not_apply(f"the decoder accepts exactly {subject.only_length} tokens")
    sentences = subject.sentences
    time = sentences.target.shape[-1]
    source = functional.pad(sentences.source, (0, 2), value=PAD)
    target = functional.pad(sentences.target, (0, 2), value=PAD)
    logits = subject.logits(replace(sentences, source=source, target=target))
    difference = logits[:, :, :time] - subject.reference_logits
    change = logit_changes(difference, sentences.target_nonpad)
    return _if_padding_is_hidden(subject, change, "change of logits by added padding")


@invariant("pad-content")
def padding_ids_change_no_logits(subject: Subject) -> Verdict:
    """Other ids at padding positions change no logits at non-padding positions."""
    sentences = subject.sentences
    word = len(SPECIALS) + 1
    source = sentences.source.where(sentences.source_nonpad, word)
    target = sentences.target.where(sentences.target_nonpad, word)
    logits = subject.logits(replace(sentences, source=source, target=target))
    change = logit_changes(logits - subject.reference_logits, sentences.target_nonpad)
    return _if_padding_is_hidden(
        subject, change, "change of logits by other ids at padding positions"
    )


@invariant("batch-of-one")
def a_batch_equals_its_sentences_alone(subject: Subject) -> Verdict:
    """A batch of N sentences gives the logits of N batches of one sentence."""
    batch = len(subject.lengths[0])
    full = ((LONGEST,) * batch,) * len(subject.seeds)
    unpadded = _changes_alone(subject, subject.random_sentences(full))
    quantity = "difference between logits alone and in a batch without padding"
    without_padding = within(unpadded, quantity, LOGITS)
    if without_padding.state == "violated":
        return without_padding
    padded = _changes_alone(subject, subject.sentences)
    return _if_padding_is_hidden(subject, padded, "difference between logits alone and in a batch")


def _changes_alone(subject: Subject, sentences: SentenceBatch) -> Tensor:
    """Return the differences between the logits of each sentence alone and in its batch."""
    together = subject.logits(sentences)
    logits = torch.zeros_like(together)
    members, batch = sentences.source_lengths.shape
    lengths = torch.stack([sentences.source_lengths, sentences.target_lengths], -1)
    for sentence in range(batch):
        column = slice(sentence, sentence + 1)
        for source_time, target_length in lengths[:, sentence].unique(dim=0).tolist():
            # Members with sentences of these lengths; the model computes all members.
            pair = torch.tensor([source_time, target_length])
            has_lengths = (lengths[:, sentence] == pair).all(-1)
            target_time = subject.only_length or target_length
            alone = SentenceBatch(
                sentences.source[:, column, :source_time],
                torch.full((members, 1), source_time),
                sentences.target[:, column, :target_time],
                torch.full((members, 1), target_length),
            )
            of_sentence = subject.logits(alone)[has_lengths, 0]
            logits[has_lengths, sentence, :target_time] = of_sentence
    return logit_changes(logits - together, sentences.target_nonpad)


def _if_padding_is_hidden(subject: Subject, change: Tensor, quantity: str) -> Verdict:
    """Return a verdict on a change that must be zero, unless logits at non-padding positions depend on padding keys."""
    roles = []
    for role in subject.roles:
        # In self-attention, padding keys are later than every non-padding query.
        in_future = subject.attention(role).is_self_attention and subject.hides("future", role)
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
    source = subject.sentences.source
    positions = torch.arange(source.shape[-1]).expand_as(source)
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
    changed_positions = logit_changes(change, positions)
    by_mirror_alone = unchanged & ~order_invariant
    if bool(by_mirror_alone.any()) and not subject.hides("padding", "encoder"):
        predicted = f"{action}, and not the padding, changes logits at non-padding positions"
        return outside("the encoder attends to padding", changed_positions, predicted)
    verdicts = []
    if bool(unchanged.any()):
        quantity = f"change of logits of an invariant variant by {action}"
        verdicts.append(within(changed_positions, quantity, LOGITS))
    if not bool(unchanged.all()):
        must_change = ~unchanged & (batch.source_lengths >= SHORTEST)
        counted = batch.target_nonpad & must_change.unsqueeze(-1)
        size = change.abs().amax(-1)
        if "encoder" not in subject.roles:  # a mask may hide the source from some target positions
            largest = size.where(batch.target_nonpad, 0.0).amax(-1, keepdim=True)
            size = largest.expand_as(counted)
        quantity = f"smallest change of logits by {action}"
        verdicts.append(beyond(size.where(counted, torch.inf), quantity, LOGITS[:3]))
    return worst(*verdicts)


def _invariant_sentences(subject: Subject, order: Tensor, name: str) -> Tensor:
    """Return the sentences ``[member, batch]`` on which the variant is invariant to a reordering.

    Encodings, scores and masks must all be invariant. An order-invariant encoding has every other
    invariance, too.
    """
    roles = ("encoder", "cross") if "encoder" in subject.roles else ("decoder", "decoder")
    of_source, of_memory = (subject.positional(role).properties for role in roles)
    is_invariant = name in of_source or "order-invariant" in of_source
    styles_depend = any(subject.depends_on_order(role) for role in roles)
    if not is_invariant or "order-invariant" not in of_memory or styles_depend:
        return torch.zeros(order.shape[:2], dtype=torch.bool)
    if "encoder" not in subject.roles:
        return _equal_after_reordering(subject, order)
    encoder = subject.mask("encoder")
    cross = subject.mask("cross")
    same_in_encoder = _chosen(_chosen(encoder, order, -1), order, -2) == encoder
    # Outputs at padding are never used.
    same_in_encoder = same_in_encoder | ~subject.sentences.source_nonpad.unsqueeze(-1)
    same_in_cross = _chosen(cross, order, -1) == cross
    return same_in_encoder.all(-1).all(-1) & same_in_cross.all(-1).all(-1)


def _equal_after_reordering(subject: Subject, order: Tensor) -> Tensor:
    """Return the sentences ``[member, batch]`` with the same mask after a reordering, of a decoder-only model."""
    mask = subject.mask("decoder")
    time = mask.shape[-1]
    rest = torch.arange(order.shape[-1], time).expand(*order.shape[:2], -1)
    order_of_all = torch.cat([order, rest], -1)
    reordered_keys = _chosen(mask, order_of_all, -1)
    if subject.config.model.decoder_layers > 1:
        same = _chosen(reordered_keys, order_of_all, -2) == mask
    else:
        # In a single layer only the rows of target positions count.
        is_target = torch.arange(time) >= subject.sentences.source_lengths.unsqueeze(-1)
        same = (reordered_keys == mask) | ~is_target.unsqueeze(-1)
    return same.all(-1).all(-1)


def _chosen(mask: Tensor, positions: Tensor, axis: int) -> Tensor:
    """Return positions ``[member, batch, position]`` of an axis of a mask ``[member, batch, query, key]``."""
    shape = list(mask.shape)
    shape[axis] = positions.shape[-1]
    other_axis = -2 if axis == -1 else -1
    return mask.gather(axis, positions.unsqueeze(other_axis).expand(shape))


@invariant("tokens-alone", scope="entry")
@torch.no_grad()
def tokens_are_processed_alone(subject: Subject) -> Verdict:
    """The output of a feed-forward network or a norm at a token depends on this token alone, not on its position."""
    modules = {"feed-forward network": subject.feed_forward, "norm": subject.norm}
    verdicts = []
    for name, role in product(modules, subject.config.entries("norm")):
        module = modules[name](role)
        tokens = subject.activations(role)[0][:, 0]
        output = module(tokens)
        outputs_alone = [module(token) for token in tokens.split(1, dim=1)]
        quantity = f"change of the output of a {name}"
        by_tokens = (output - torch.cat(outputs_alone, dim=1)).abs()
        verdict = within(by_tokens, f"{quantity} by other tokens", COORDINATES)
        verdicts.append(verdict.in_role(role))
        by_position = (output - module(tokens.flip(1)).flip(1)).abs()
        verdict = within(by_position, f"{quantity} by the position of a token", COORDINATES)
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
        norm = subject.norm(role)
        tokens = subject.activations(role)[0][:, 0]
        for name, factor, shift in (("scale-invariant", 3, 0), ("shift-invariant", 1, 1e6)):
            is_declared = name in norm.properties
            x = (1e6 if is_declared else 1e2) * tokens
            change = (norm(factor * x + shift) - norm(x)).abs().amax((1, 2))
            if is_declared:
                verdict = within(change, f"largest change of a norm that is {name}", ("member",))
            else:
                quantity = f"largest change of a norm that is not {name}"
                verdict = beyond(change, quantity, ("member",))
            verdicts.append(verdict.in_role(role))
    return worst(*verdicts)
