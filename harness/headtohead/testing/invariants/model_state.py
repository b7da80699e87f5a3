"""A seed determines the model, a checkpoint holds it, its members are independent, and a pass changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import torch
from torch import Tensor

from headtohead.model.decoding import greedy
from headtohead.model.transformer import Transformer
from headtohead.testing.extremum import Extremum, largest_logit_change, maximum_of
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import SentenceBatch, Subject, explicit_forward, forward
from headtohead.testing.verdict import EXACT, Verdict, violated, within, worst


@invariant("determinism")
def a_seed_determines_the_model(subject: Subject) -> Verdict:
    """Equal seeds give equal weights and logits, alone and in a stack; other seeds give other embeddings."""
    first, second = (_build(subject, subject.seeds) for _ in range(2))
    last = len(subject.seeds) - 1
    alone, rebuilt = _build(subject, subject.seeds[last:]).state_dict(), second.state_dict()
    table = first.target_embedding.weight
    if last and bool((table[0] == table[1]).all()):
        return violated("two seeds have the same initial weights", 0.0)
    verdicts = [_same_logits(subject, first)]
    for name, value in first.state_dict().items():
        verdicts.append(
            _same_weights(value, rebuilt[name], f"{name}: difference between two models with the same seeds")
        )
        verdicts.append(
            _same_weights(value[last], alone[name][0], f"{name}: difference between a member in a stack and alone")
        )
    return worst(*verdicts)


def _build(subject: Subject, seeds: tuple[int, ...]) -> Transformer:
    # Random numbers from torch's global generator would differ between two models.
    return Transformer(subject.config, seeds, *subject.vocab_sizes).double().eval()


@torch.no_grad()
def _same_logits(subject: Subject, model: Transformer) -> Verdict:
    first, second = (forward(model, subject.sentences) for _ in range(2))
    everywhere = torch.ones(first.shape[:3], dtype=torch.bool)
    change = largest_logit_change(first - second, everywhere, "repeating the same pass")
    return within(change, "difference between two passes of the same model", 0.0)


def _same_weights(first: Tensor, second: Tensor, quantity: str) -> Verdict:
    if first.shape != second.shape:
        return violated(f"{quantity}: shapes {list(first.shape)} and {list(second.shape)}")
    difference = float((first - second).abs().max()) if first.numel() else 0.0
    return within(Extremum(difference, f"{quantity} is {difference:.3g}"), quantity, 0.0)


@invariant("checkpoint")
def a_checkpoint_holds_the_whole_model(subject: Subject) -> Verdict:
    """A stack of other seeds gives the same logits after loading the saved members."""
    state, members = subject.model.state_dict(), len(subject.seeds)
    for name, value in state.items():
        if value.dim() == 0 or len(value) != members:
            return violated(f"'{name}' is saved with shape {list(value.shape)}, without an axis of {members} members")
    other = subject.build([seed + 100 for seed in subject.seeds])
    for member in range(members):
        other.load_member(member, subject.model.member_state(member))
    with torch.no_grad():
        difference = forward(other, subject.sentences) - subject.reference_logits
    change = largest_logit_change(difference, subject.sentences.target_nonpad, "saving and loading the weights")
    return within(change, "change of logits by saving and loading")


@invariant("members")
def members_compute_the_same_alone(subject: Subject) -> Verdict:
    """The logits of each member of a stack equal those of a model with its weights alone."""
    return within(
        maximum_of([_largest_change_alone(subject, member) for member in range(len(subject.seeds))]),
        "difference between logits in a stack and alone",
        EXACT,
    )


def _largest_change_alone(subject: Subject, member: int) -> Extremum:
    model = subject.build([subject.seeds[member]])
    model.load_member(0, subject.model.member_state(member))
    only = slice(member, member + 1)
    sentences = SentenceBatch(*(getattr(subject.sentences, field.name)[only] for field in fields(SentenceBatch)))
    with torch.no_grad():
        difference = forward(model, sentences) - subject.reference_logits[only]
    return largest_logit_change(difference, sentences.target_nonpad, f"taking member {member} out of its stack")


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
