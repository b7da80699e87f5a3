"""Dropout acts in training and never in evaluation."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.model.transformer import Transformer
from headtohead.schema.run_config import RunConfig
from headtohead.testing.extremum import largest_logit_change
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject, explicit_forward, forward
from headtohead.testing.verdict import Verdict, beyond, within, worst

RATE = 0.5
FIELDS = ("dropout_embedding", "dropout_attention", "dropout_ffn", "dropout_residual")


@invariant("evaluation")
def dropout_acts_in_training_only(subject: Subject) -> Verdict:
    """Each dropout rate changes no logits in evaluation and some logits in training."""
    verdicts: list[Verdict] = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(31)
        for field in FIELDS:
            verdicts += _check(subject, field)
    return worst(*verdicts)


def _check(subject: Subject, field: str) -> list[Verdict]:
    model = Transformer(_with_rate(subject.config, field), subject.seeds, *subject.vocab_sizes)
    model.double().load_state_dict(subject.model.state_dict())
    model.eval()
    verdicts = [
        within(
            largest_logit_change(
                logits - subject.reference_logits, subject.sentences.target_nonpad, f"{field} of {RATE}"
            ),
            f"change of logits in evaluation by {field}",
        )
        for logits in (forward(model, subject.sentences), explicit_forward(model, subject.sentences))
    ]
    if any(not subject.attention(role).style.projects for role in subject.roles):
        return verdicts  # among activations of 1e9, a change may be below every threshold
    model.train()
    parameters = {name for name, _ in model.named_parameters()}
    buffers = {name: value.clone() for name, value in model.state_dict().items() if name not in parameters}
    first, second = (_training_logits(subject, model, buffers) for _ in range(2))
    change = float((first - second).abs().max())
    return [*verdicts, beyond(change, f"change of logits between two training passes by {field}")]


def _with_rate(config: RunConfig, field: str) -> RunConfig:
    model = config.model.model_copy(update={field: RATE})
    return config.model_copy(update={"model": model})


def _training_logits(subject: Subject, model: Transformer, buffers: dict[str, Tensor]) -> Tensor:
    """Return the logits of a training pass at non-padding positions.

    The buffers hold the state of sampled positions; restoring them leaves dropout as the only
    difference between two passes.
    """
    if buffers:
        model.load_state_dict(buffers, strict=False)
    return forward(model, subject.sentences)[subject.sentences.target_nonpad]
