"""A pass changes neither the model, nor its inputs, nor torch's global state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import torch
from torch import Tensor

from headtohead.model.decoding import greedy
from headtohead.model.transformer import Transformer
from headtohead.testing.extremum import Extremum, largest_logit_change
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import SentenceBatch, Subject, explicit_forward, forward
from headtohead.testing.verdict import Verdict, violated, within, worst


@invariant("stateless")
def a_pass_has_no_side_effects(subject: Subject) -> Verdict:
    """Earlier passes change no logits, inputs, weights or global state of torch."""
    rng_state, dtype = torch.get_rng_state(), torch.get_default_dtype()
    weights = {name: value.clone() for name, value in subject.model.state_dict().items()}
    inputs = _tensors(subject.sentences)
    used, fresh = (subject.build(subject.seeds) for _ in range(2))
    reordered = SentenceBatch(*(getattr(subject.sentences, field.name).flip(1) for field in fields(SentenceBatch)))
    with torch.no_grad():
        before = forward(used, subject.sentences)
        other = forward(used, reordered) - forward(fresh, reordered)
        _run_other_passes(subject, used, reordered)
        after = forward(used, subject.sentences)
    action = "earlier passes over other sentences"
    nonpad = subject.sentences.target_nonpad
    return worst(
        within(largest_logit_change(after - before, nonpad, action), f"change of logits by {action}", 0.0),
        within(largest_logit_change(other, reordered.target_nonpad, action), f"change of logits by {action}", 0.0),
        _unchanged(inputs, _tensors(subject.sentences), "ids or lengths changed by a pass"),
        _unchanged(weights, subject.model.state_dict(), "weights or buffers changed by a pass"),
        *_attention_inputs(subject),
        _global_state(rng_state, dtype),
    )


@torch.no_grad()
def _run_other_passes(subject: Subject, model: Transformer, reordered: SentenceBatch) -> None:
    """Run passes with other lengths in the same shape, step by step, and in training mode."""
    sentences = subject.sentences
    full = replace(
        sentences,
        source_lengths=torch.full_like(sentences.source_lengths, sentences.source.shape[-1]),
        target_lengths=torch.full_like(sentences.target_lengths, sentences.target.shape[-1]),
    )
    for batch in (reordered, full):
        forward(model, batch)
        explicit_forward(model, batch)
    if subject.only_length is None:
        greedy(model, reordered.source, reordered.source_lengths, 3)
        ones = torch.ones_like(reordered.target_lengths)
        forward(model, replace(reordered, target=reordered.target[:, :, :1], target_lengths=ones))
    model.train()
    with torch.random.fork_rng(devices=[]):
        forward(model, reordered)
    model.eval()


def _attention_inputs(subject: Subject) -> Iterator[Verdict]:
    """Check that an attention changes neither its inputs nor its positions and mask."""
    for role in subject.roles:
        attention, context = subject.attention(role), subject.attention_context(role, mask=subject.mask(role))
        x, memory = subject.activations(role)
        inputs = {
            "x": x,
            "memory": memory,
            "mask": context.mask,
            "queries": context.query_positions,
            "keys": context.key_positions,
        }
        tensors = {name: tensor for name, tensor in inputs.items() if tensor is not None}
        copies = {name: tensor.clone() for name, tensor in tensors.items()}
        with torch.no_grad():
            for record in (None, lambda name, value: None):
                attention(x, memory, context, None, record)
        yield _unchanged(copies, tensors, f"{role}: entries of its inputs changed by an attention")


def _unchanged(before: dict[str, Tensor], after: dict[str, Tensor], quantity: str) -> Verdict:
    changed = {name: int((value != after[name]).sum()) for name, value in before.items() if value.numel()}
    total = sum(changed.values())
    names = ", ".join(name for name, count in changed.items() if count)
    return within(Extremum(float(total), f"{total} {quantity}: {names}"), quantity, 0.0)


def _tensors(sentences: SentenceBatch) -> dict[str, Tensor]:
    return {field.name: getattr(sentences, field.name).clone() for field in fields(sentences)}


def _global_state(rng_state: Tensor, dtype: torch.dtype) -> Verdict:
    if torch.get_default_dtype() != dtype:
        torch.set_default_dtype(dtype)
        return violated("torch's default type was changed")
    if not torch.equal(torch.get_rng_state(), rng_state):
        torch.set_rng_state(rng_state)
        return violated("the model uses torch's global generator; use the generators of the context")
    return Verdict("holds", 0.0, "changes of torch's global state")
