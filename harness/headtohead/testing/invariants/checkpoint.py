"""A checkpoint holds the whole model, and each member of a stack is a model by itself."""

from __future__ import annotations

from dataclasses import fields

import torch

from headtohead.testing.extremum import Extremum, largest_logit_change, maximum_of
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import SentenceBatch, Subject, forward
from headtohead.testing.verdict import EXACT, Verdict, violated, within


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
