"""Positions that training draws: rising, of the right shape, and each member's own."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.model.attention import overrides
from headtohead.model.transformer import Transformer
from headtohead.plugins.positional import Positional
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, does_not_apply, worst

BATCH, TIME = 5, 6


@invariant("drawn-positions")
def drawn_positions_rise_and_belong_to_their_member(subject: Subject) -> Verdict:
    """Drawn positions rise along a sentence, differ by draw and member, and can be had again."""
    roles = [role for role in ("encoder", "decoder") if overrides(subject.positional(role), Positional, "draw")]
    if not roles:
        return does_not_apply("the encoding draws no positions")
    return worst(*(_check(subject, role) for role in roles))


def _check(subject: Subject, role: str) -> Verdict:
    stack = _draws(subject, role, subject.seeds)
    wrong = _ill_formed(stack[0], len(subject.seeds))
    if wrong is not None:
        return _broken(f"{role}: {wrong}")
    again = _draws(subject, role, subject.seeds)
    if not all(torch.equal(one, other) for one, other in zip(stack, again, strict=True)):
        return _broken(f"{role}: the same seeds draw other positions")
    if all(torch.equal(stack[0], other) for other in stack[1:]):
        return _broken(f"{role}: every pass draws the same positions")
    for member, seed in enumerate(subject.seeds):
        alone = _draws(subject, role, [seed])
        if any(not torch.equal(one[:1], other[member : member + 1]) for one, other in zip(alone, stack, strict=True)):
            return _broken(f"{role}: member {member} draws other positions alone")
    if len(subject.seeds) > 1 and all(torch.equal(one[0], one[1]) for one in stack):
        return _broken(f"{role}: two members draw the same positions")
    return _resumed(subject, role, stack)


def _resumed(subject: Subject, role: str, stack: list[Tensor]) -> Verdict:
    """Check that the stream goes on where a saved model left it."""
    first = _positional(subject, role, subject.seeds)
    first[1].draw(BATCH, TIME)
    later = _positional(subject, role, subject.seeds)
    later[0].load_state_dict(first[0].state_dict())
    found = later[1].draw(BATCH, TIME)
    if found is None or not torch.equal(found, stack[1]):
        return _broken(f"{role}: after loading a checkpoint the draws begin anew")
    return Verdict("holds", 0.0, f"{role}: draws that differ from the member's own")


def _draws(subject: Subject, role: str, seeds: object) -> list[Tensor]:
    _, positional = _positional(subject, role, seeds)
    found = [positional.draw(BATCH, TIME) for _ in range(3)]
    return [one if one is not None else torch.arange(TIME).expand(1, BATCH, TIME) for one in found]


def _positional(subject: Subject, role: str, seeds: object) -> tuple[Transformer, Positional]:
    model = Transformer(subject.config, seeds, *subject.words).train()  # type: ignore[arg-type]
    part = model.positionals[role]
    assert isinstance(part, Positional)
    return model, part


def _ill_formed(drawn: Tensor, members: int) -> str | None:
    if drawn.shape != (members, BATCH, TIME):
        return f"expected positions {[members, BATCH, TIME]}, got {list(drawn.shape)}"
    if drawn.is_floating_point():
        return "positions are no whole numbers"
    if bool((drawn < 0).any()):
        return "a position is negative"
    return None if bool((drawn.diff(dim=-1) > 0).all()) else "positions do not rise"


def _broken(told: str) -> Verdict:
    return Verdict("broken", None, told, shown=told)
