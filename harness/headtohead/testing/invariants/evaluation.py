"""Dropout acts while training and never else."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.model.transformer import Transformer
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import RunConfig
from headtohead.testing.invariant import invariant
from headtohead.testing.seen import moved_logit
from headtohead.testing.subject import Subject, explicit_forward, forward
from headtohead.testing.verdict import Verdict, beyond, within, worst

RATE = 0.5
PLACES = ("dropout_embedding", "dropout_attention", "dropout_ffn", "dropout_residual")


@invariant("evaluation")
def dropout_acts_in_training_alone(subject: Subject) -> Verdict:
    """Rates of dropout change no logit in evaluation; each of them changes some in training."""
    verdicts = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(31)
        for place in PLACES:
            verdicts += list(_asked(subject, place))
    return worst(*verdicts)


def _asked(subject: Subject, place: str) -> tuple[Verdict, ...]:
    model = Transformer(_dropping(subject.config, place), subject.seeds, *subject.words)
    model.double().load_state_dict(subject.model.state_dict())
    model.eval()
    live = subject.sentences.live_target
    still = [
        within(
            moved_logit(one - subject.plain, live, f"a rate of {RATE} of {place}"),
            f"change of logits in evaluation by {place}",
        )
        for one in (forward(model, subject.sentences), explicit_forward(model, subject.sentences))
    ]
    if any(not subject.attention(role).style.projects for role in ROLES):
        return tuple(still)  # beside numbers of 1e9, a change may be below every threshold
    model.train()
    weights = {name for name, _ in model.named_parameters()}
    drawn = {name: one.clone() for name, one in model.state_dict().items() if name not in weights}
    first, second = (_trained(subject, model, drawn) for _ in range(2))
    most = float((first - second).abs().max())
    what = f"change of logits between two training passes by {place}"
    return (*still, beyond(most, what, shown=f"{what} is {most:.3g}"))


def _dropping(config: RunConfig, place: str) -> RunConfig:
    model = config.model.model_copy(update={place: RATE})
    return config.model_copy(update={"model": model})


def _trained(subject: Subject, model: Transformer, drawn: dict[str, Tensor]) -> Tensor:
    """Return live logits of a training pass, told the same places every time."""
    if drawn:
        model.load_state_dict(drawn, strict=False)
    return forward(model, subject.sentences)[subject.sentences.live_target]
