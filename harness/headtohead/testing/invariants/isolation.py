"""What a token changes in models and batches as large as those of training, in training and in evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from headtohead.data.vocabulary import SPECIALS
from headtohead.model.transformer import Transformer
from headtohead.plugins.component import Component
from headtohead.plugins.member_rng import PerMemberRNG
from headtohead.schema.run_config import changed
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Lengths, SentenceBatch, Subject, forward
from headtohead.testing.verdict import (
    EXACT,
    LOGITS,
    Verdict,
    logit_changes,
    violated,
    within,
    worst,
)

LAYERS, MEMBERS = 4, 5
"""Least number of layers of the models, and members of a stack with many sentences."""

SHORT = tuple((6 - index % 6, 8 - index % 7) for index in range(20))
"""Source and target tokens of many sentences."""

LONG, MAX_LONG = 130, 2048
"""Tokens of a long target without a study, and at most; without a study, its source has a quarter as many."""

COPIES, MAX_TOKENS = 4, 2048
"""Largest number of long sentences of a member, and of their target tokens; there are at least two."""

PLAIN = (int, float, str, list, tuple, dict, set)
"""Types of attributes that a pass may not change."""

BOUNDS = {torch.float64: EXACT, torch.float32: 1e-4}
"""Largest change by rounding."""


@invariant("isolation", scope="entry")
def a_target_token_changes_later_logits_of_its_sentence_alone(subject: Subject) -> Verdict:
    """A target token changes only later logits of its sentence, in training too, and a pass changes no attribute.

    The models have at least four layers and compute in float64 and in float32. A batch has long sentences of two
    members, which change from different tokens on, or 20 sentences of each of five, of which the first changes.
    """
    config, roles = subject.config, subject.roles
    if subject.longest is None:
        layers = {
            name: max(LAYERS, getattr(config.model, name))
            for name in ("encoder_layers", "decoder_layers")
        }
        config = changed(config, model=layers)
    parts = [
        part for role in roles for part in (subject.positional(role), subject.attention(role).style)
    ]
    most = min(
        [MAX_LONG, *(limit - 1 for part in parts if (limit := type(part).limit(part.options)))]
    )
    source, time = (max(1, min(own, most)) for own in subject.longest or (LONG // 4, LONG))
    if "encoder" not in roles:  # the decoder reads both
        source = max(1, min(source, most - time))
    time = subject.only_length or max(2, time)
    copies = max(2, min(COPIES, MAX_TOKENS // time))
    points = (*(time * part // copies for part in range(1, copies)), time - 1)
    batches = (((((source, time),) * copies,) * 2, points), ((SHORT,) * MEMBERS, (4,)))
    return worst(
        *(
            _isolated(Subject(config, range(len(lengths))), lengths, own, dtype, training)
            for lengths, own in batches
            for dtype in BOUNDS
            for training in (False, True)
        )
    )


def _isolated(
    subject: Subject, lengths: Lengths, points: Sequence[int], dtype: torch.dtype, training: bool
) -> Verdict:
    """Change the first targets of member 0 from the tokens ``points`` on."""
    model, sentences = (
        subject.build(subject.seeds).to(dtype).train(training),
        subject.random_sentences(lengths),
    )
    target, first = sentences.target.clone(), len(SPECIALS)
    for sentence, point in enumerate(points):
        changed_tokens = first + (target[0, sentence, point:] - first + 1) % (
            subject.vocab_sizes[1] - first
        )
        target[0, sentence, point:] = changed_tokens
    streams = {
        module: module.state.clone()
        for module in model.modules()
        if isinstance(module, PerMemberRNG)
    }

    def logits(batch: SentenceBatch) -> Tensor:
        for stream, state in streams.items():
            stream.state.copy_(state)
        with torch.set_grad_enabled(training):  # code can depend on it
            return forward(model, batch).detach()

    where = f"{'training' if training else 'evaluation'}, {target[0].numel()} tokens, {dtype}"
    before, attributes = logits(sentences), _attributes(model)
    again = logits(sentences)
    if moved := [
        name for name, value in _attributes(model).items() if attributes.get(name) != value
    ]:
        return violated(
            f"a pass changes '{moved[0]}' ({where}); microbatches or a resumed run would change results"
        )
    if not torch.equal(before, again):
        return violated(f"two equal passes differ ({where})", float((before - again).abs().max()))
    change = logits(replace(sentences, target=target)) - before
    for sentence, point in enumerate(points):
        change[0, sentence, point if subject.is_causal else 0 :] = 0
    quantity = f"change of earlier logits, or of logits of other sentences ({where})"
    return within(logit_changes(change, sentences.target_nonpad), quantity, LOGITS, BOUNDS[dtype])


def _attributes(model: Transformer) -> dict[str, object]:
    """Return buffers, and the plain attributes of components and maskings."""
    found, own = (
        dict[str, object](),
        {*vars(nn.Module()), "_cache"},
    )  # the last by Positional.cached
    maskings = [
        part
        for masking in model.maskings.values()
        for part in (masking, *getattr(masking, "parts", ()))
    ]
    parts: list[tuple[str, object]] = [
        (f"masking {type(masking).__name__}", masking) for masking in maskings
    ]
    for path, module in model.named_modules():
        if not isinstance(module, PerMemberRNG):
            found |= {f"{path}.{name}": buffer.tolist() for name, buffer in module._buffers.items()}
        parts += [(path, module)] * isinstance(module, Component)
    for path, part in parts:
        plain = {name: value for name, value in vars(part).items() if isinstance(value, PLAIN)}
        found |= {f"{path}.{name}": repr(plain[name]) for name in plain.keys() - own}
    return found
