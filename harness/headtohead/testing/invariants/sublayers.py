"""Feed-forward networks act on each token alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import LOGITS, Verdict, within, worst


@invariant("tokens-alone", scope="entry")
def tokens_are_processed_alone(subject: Subject) -> Verdict:
    """The output of a feed-forward network at a token depends on this token alone, not on others or on its place."""
    verdicts = []
    for role in subject.config.entries("feed_forward"):
        x = _tokens(subject)
        verdicts.append(_alone(subject.feed_forward(role), x, "feed-forward network").in_role(role))
    return worst(*verdicts)


def _tokens(subject: Subject) -> Tensor:
    """Return random tokens, ``[member, tokens, d_model]``."""
    shape = (len(subject.seeds), 6, subject.config.model.d_model)
    return torch.randn(shape, generator=torch.Generator().manual_seed(17), dtype=torch.float64)


@torch.no_grad()
def _alone(module: nn.Module, x: Tensor, name: str) -> Verdict:
    """Compare each token's output with that of the token alone, and with that of the reversed tokens."""
    together = module(x)
    alone = torch.cat([module(token) for token in x.split(1, dim=1)], dim=1)
    return worst(
        within((together - alone).abs(), f"difference of a {name} between a token among others and alone", LOGITS),
        within((together - module(x.flip(1)).flip(1)).abs(), f"difference of a {name} by the place of a token", LOGITS),
    )
