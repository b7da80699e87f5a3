"""Asking leaves no trace: neither in the model, nor in what it was given, nor around it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import torch
from torch import Tensor

from headtohead.model.decoding import greedy
from headtohead.model.transformer import Transformer
from headtohead.schema.roles import ROLES
from headtohead.testing.invariant import invariant
from headtohead.testing.seen import Seen, moved_logit
from headtohead.testing.subject import Sentences, Subject, explicit_forward, forward
from headtohead.testing.verdict import Verdict, within, worst


@invariant("stateless")
def asking_leaves_no_trace(subject: Subject) -> Verdict:
    """What was asked before changes no logit; inputs, weights and torch's own state stay."""
    random, dtype = torch.get_rng_state(), torch.get_default_dtype()
    weights = {name: value.clone() for name, value in subject.model.state_dict().items()}
    given = _tensors(subject.sentences)
    used, fresh = (subject.build(subject.seeds) for _ in range(2))
    turned = _turned(subject.sentences)
    with torch.no_grad():
        before = forward(used, subject.sentences)
        other = forward(used, turned) - forward(fresh, turned)
        _ask_others(subject, used, turned)
        after = forward(used, subject.sentences)
    live = subject.sentences.live_target
    doing = "having been asked about other sentences"
    return worst(
        within(moved_logit(after - before, live, doing), f"change of logits by {doing}", 0.0),
        within(moved_logit(other, turned.live_target, doing), f"change of logits by {doing}", 0.0),
        _same(given, _tensors(subject.sentences), "ids or lengths that a pass changed"),
        _same(weights, subject.model.state_dict(), "weights or buffers that a pass changed"),
        *_untouched(subject),
        _global(random, dtype),
    )


def _turned(sentences: Sentences) -> Sentences:
    """Return the same batch with its sentences in another order."""
    return Sentences(*(getattr(sentences, one.name).flip(1) for one in fields(sentences)))


@torch.no_grad()
def _ask_others(subject: Subject, model: Transformer, turned: Sentences) -> None:
    """Ask a model other things: other lengths in the same shape, step by step, while training."""
    sentences = subject.sentences
    full = replace(
        sentences,
        source_lengths=torch.full_like(sentences.source_lengths, sentences.source.shape[-1]),
        target_lengths=torch.full_like(sentences.target_lengths, sentences.target.shape[-1]),
    )
    for other in (turned, full):
        forward(model, other)
        explicit_forward(model, other)
    if subject.only_length is None:
        greedy(model, turned.source, turned.source_lengths, 3)
        first = replace(turned, target=turned.target[:, :, :1], target_lengths=torch.ones_like(turned.target_lengths))
        forward(model, first)
    model.train()
    with torch.random.fork_rng(devices=[]):
        forward(model, turned)
    model.eval()


def _untouched(subject: Subject) -> Iterator[Verdict]:
    """Check that an attention leaves its inputs, positions and mask alone."""
    for role in ROLES:
        attention, view = subject.attention(role), subject.view(role, mask=subject.mask(role))
        x, memory = subject.activations(role)
        given = {
            "x": x,
            "memory": memory,
            "mask": view.mask,
            "queries": view.query_positions,
            "keys": view.key_positions,
        }
        known = {name: one for name, one in given.items() if one is not None}
        kept = {name: one.clone() for name, one in known.items()}
        with torch.no_grad():
            for record in (None, lambda name, value: None):
                attention(x, memory, view, None, record)
        yield _same(kept, known, f"{role}: numbers given to an attention that it changed")


def _same(before: dict[str, Tensor], after: dict[str, Tensor], what: str) -> Verdict:
    changed = {name: int((value != after[name]).sum()) for name, value in before.items() if value.numel()}
    wrong = sum(changed.values())
    names = ", ".join(name for name, count in changed.items() if count)
    return within(Seen(float(wrong), f"{wrong} {what}: {names}"), what, 0.0)


def _tensors(sentences: Sentences) -> dict[str, Tensor]:
    return {one.name: getattr(sentences, one.name).clone() for one in fields(sentences)}


def _global(random: Tensor, dtype: torch.dtype) -> Verdict:
    if torch.get_default_dtype() != dtype:
        torch.set_default_dtype(dtype)
        told = "torch's default type was changed"
        return Verdict("broken", None, told, shown=told)
    if not torch.equal(torch.get_rng_state(), random):
        torch.set_rng_state(random)
        told = "building or asking drew from torch's own stream; every draw is a member's own"
        return Verdict("broken", None, told, shown=told)
    return Verdict("holds", 0.0, "torch's own state stays")
