"""Positions that are sampled in training: rising, of the right shape, and independent of the stack."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headtohead.model.attention import overrides
from headtohead.model.transformer import Transformer
from headtohead.plugins.positional import Positional
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, does_not_apply, violated, worst

BATCH, TIME = 5, 6


@invariant("sampled-positions")
def sampled_positions_rise_and_belong_to_their_member(subject: Subject) -> Verdict:
    """Sampled positions rise along a sentence, differ by pass and member, and depend on the seed alone."""
    roles = [role for role in ("encoder", "decoder") if overrides(subject.positional(role), Positional, "draw")]
    if not roles:
        return does_not_apply("the encoding samples no positions")
    return worst(*(_check(subject, role) for role in roles))


def _check(subject: Subject, role: str) -> Verdict:
    stack = _three_samples(subject, role, subject.seeds)
    error = _ill_formed(stack[0], len(subject.seeds))
    if error is not None:
        return violated(f"{role}: {error}")
    again = _three_samples(subject, role, subject.seeds)
    if not all(torch.equal(first, second) for first, second in zip(stack, again, strict=True)):
        return violated(f"{role}: positions differ between two models with the same seeds")
    if all(torch.equal(stack[0], sample) for sample in stack[1:]):
        return violated(f"{role}: every pass samples the same positions")
    for member, seed in enumerate(subject.seeds):
        alone = _three_samples(subject, role, [seed])
        if any(
            not torch.equal(single[:1], stacked[member : member + 1])
            for single, stacked in zip(alone, stack, strict=True)
        ):
            return violated(f"{role}: member {member} samples other positions alone than in the stack")
    if len(subject.seeds) > 1 and all(torch.equal(sample[0], sample[1]) for sample in stack):
        return violated(f"{role}: two members sample the same positions")
    return _continues_after_loading(subject, role, stack)


def _continues_after_loading(subject: Subject, role: str, stack: list[Tensor]) -> Verdict:
    """Check that the random stream continues from the state in a checkpoint."""
    model, positional = _model_and_encoding(subject, role, subject.seeds)
    positional.draw(BATCH, TIME)
    loaded, loaded_positional = _model_and_encoding(subject, role, subject.seeds)
    loaded.load_state_dict(model.state_dict())
    positions = loaded_positional.draw(BATCH, TIME)
    if positions is None or not torch.equal(positions, stack[1]):
        return violated(f"{role}: after loading a checkpoint the random stream restarts")
    return Verdict("holds", 0.0, f"{role}: samples that differ from the member's own")


def _three_samples(subject: Subject, role: str, seeds: Sequence[int]) -> list[Tensor]:
    _, positional = _model_and_encoding(subject, role, seeds)
    samples = [positional.draw(BATCH, TIME) for _ in range(3)]
    return [sample if sample is not None else torch.arange(TIME).expand(1, BATCH, TIME) for sample in samples]


def _model_and_encoding(subject: Subject, role: str, seeds: Sequence[int]) -> tuple[Transformer, Positional]:
    model = Transformer(subject.config, seeds, *subject.vocab_sizes).train()
    positional = model.positionals[role]
    assert isinstance(positional, Positional)
    return model, positional


def _ill_formed(positions: Tensor, members: int) -> str | None:
    if positions.shape != (members, BATCH, TIME):
        return f"expected positions of shape {[members, BATCH, TIME]}, got {list(positions.shape)}"
    if positions.is_floating_point():
        return "positions are not integers"
    if bool((positions < 0).any()):
        return "a position is negative"
    return None if bool((positions.diff(dim=-1) > 0).all()) else "positions do not rise"
