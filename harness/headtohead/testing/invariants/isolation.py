"""What a token changes in models and batches as large as those of training, in training and in evaluation."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from headtohead.data.vocabulary import SPECIALS
from headtohead.plugins.component import Component
from headtohead.plugins.member_rng import PerMemberRNG
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Lengths, SentenceBatch, Subject, forward
from headtohead.testing.tiny import changed
from headtohead.testing.verdict import EXACT, LOGITS, Verdict, logit_changes, violated, within, worst

LAYERS, MEMBERS = 4, 5
"""Least number of layers of the models, and members of a stack with many sentences."""

SHORT = tuple((6 - index % 6, 8 - index % 7) for index in range(20))
"""Source and target tokens of many sentences."""

LONG, MAX_LONG = 130, 2048
"""Target tokens of a long sentence, without a study, and their largest number."""

BOUNDS = {torch.float64: EXACT, torch.float32: 1e-4}
"""Largest change by rounding."""


@invariant("isolation", scope="entry")
def a_target_token_changes_later_logits_of_its_sentence_alone(subject: Subject) -> Verdict:
    """A target token changes only later logits of its sentence, in training too, and a pass changes no attribute.

    The models have at least four layers and compute in float64 and in float32. A batch has one long sentence for each
    of two members, or 20 sentences for each of five.
    """
    config, roles = subject.config, subject.roles
    if subject.longest is None:
        layers = {name: max(LAYERS, getattr(config.model, name)) for name in ("encoder_layers", "decoder_layers")}
        config = changed(config, model=layers)
    parts = [part for role in roles for part in (subject.positional(role), subject.attention(role).style)]
    limits = [limit - 1 for part in parts if (limit := type(part).limit(part.options))]
    time = subject.only_length or max(2, min(subject.longest or LONG, MAX_LONG, *limits))
    return worst(
        *(
            _isolated(Subject(config, range(len(lengths))), lengths, dtype, training)
            for lengths in ((((1, time),),) * 2, (SHORT,) * MEMBERS)
            for dtype in BOUNDS
            for training in (False, True)
        )
    )


@torch.no_grad()
def _isolated(subject: Subject, lengths: Lengths, dtype: torch.dtype, training: bool) -> Verdict:
    """Change the second half of the first target of member 0."""
    model, sentences = subject.build(subject.seeds).to(dtype).train(training), subject.random_sentences(lengths)
    target, half, first = sentences.target.clone(), sentences.target.shape[-1] // 2, len(SPECIALS)
    target[0, 0, half:] = first + (target[0, 0, half:] - first + 1) % (subject.vocab_sizes[1] - first)
    streams = {module: module.state.clone() for module in model.modules() if isinstance(module, PerMemberRNG)}

    def logits(batch: SentenceBatch) -> Tensor:
        for stream, state in streams.items():
            stream.state.copy_(state)
        return forward(model, batch)

    where = f"{'training' if training else 'evaluation'}, {target[0].numel()} tokens, {dtype}"
    before, attributes = logits(sentences), _attributes(model)
    again = logits(sentences)
    if moved := [name for name, value in _attributes(model).items() if attributes.get(name) != value]:
        return violated(f"a pass changes '{moved[0]}' ({where}); microbatches or a resumed run would change results")
    if not torch.equal(before, again):
        return violated(f"two equal passes differ ({where})", float((before - again).abs().max()))
    change = logits(replace(sentences, target=target)) - before
    change[0, 0, half if subject.is_causal else 0 :] = 0
    quantity = f"change of earlier logits, or of logits of other sentences ({where})"
    return within(logit_changes(change, sentences.target_nonpad), quantity, LOGITS, BOUNDS[dtype])


def _attributes(model: nn.Module) -> dict[str, object]:
    """Return buffers, and numbers and texts that components hold as plain attributes."""
    found: dict[str, object] = {}
    for path, module in model.named_modules():
        if not isinstance(module, PerMemberRNG):
            found |= {f"{path}.{name}": buffer.tolist() for name, buffer in module._buffers.items()}
        if isinstance(module, Component):
            plain = {name: value for name, value in vars(module).items() if isinstance(value, int | float | str)}
            found |= {f"{path}.{name}": value for name, value in plain.items()}
    return found
