"""What is saved is the whole model, and each member is a model of its own."""

from __future__ import annotations

from dataclasses import fields

import torch

from headtohead.testing.invariant import invariant
from headtohead.testing.seen import Seen, moved_logit, worst_of
from headtohead.testing.subject import Sentences, Subject, forward
from headtohead.testing.verdict import EXACT, Verdict, within
from headtohead.training.checkpoint import load_members


@invariant("checkpoint")
def a_checkpoint_holds_everything(subject: Subject) -> Verdict:
    """Weights that are saved member by member, and loaded where others were drawn, act the same."""
    state, members = subject.model.state_dict(), len(subject.seeds)
    for name, value in state.items():
        if value.dim() == 0 or len(value) != members:
            told = f"'{name}' is saved as {list(value.shape)}, without an axis of {members} members"
            return Verdict("broken", None, told, shown=told)
    other = subject.build([seed + 100 for seed in subject.seeds])
    load_members(other, [subject.model.member_state(member) for member in range(members)])
    with torch.no_grad():
        apart = forward(other, subject.sentences) - subject.plain
    found = moved_logit(apart, subject.sentences.live_target, "saving and loading the weights")
    return within(found, "change of logits by saving and loading")


@invariant("members")
def a_member_computes_what_it_would_alone(subject: Subject) -> Verdict:
    """The logits of each member of a stack are those of its weights alone."""
    return within(
        worst_of([_alone(subject, member) for member in range(len(subject.seeds))]),
        "difference of logits in a stack and alone",
        EXACT,
    )


def _alone(subject: Subject, member: int) -> Seen:
    model = subject.build([subject.seeds[member]])
    load_members(model, [subject.model.member_state(member)])
    own = slice(member, member + 1)
    sentences = Sentences(*(getattr(subject.sentences, one.name)[own] for one in fields(Sentences)))
    with torch.no_grad():
        apart = forward(model, sentences) - subject.plain[own]
    return moved_logit(apart, sentences.live_target, f"taking member {member} out of its stack")
