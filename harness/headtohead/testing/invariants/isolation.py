"""What a token changes in models and batches as large as those of training, in training and in evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from headtohead.model.transformer import Transformer
from headtohead.plugins.component import Component
from headtohead.plugins.member_rng import PerMemberRNG
from headtohead.schema.run_config import changed
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Lengths, SentenceBatch, Subject, forward, next_words
from headtohead.testing.verdict import (
    EXACT,
    LOGITS,
    Verdict,
    logit_changes,
    violated,
    within,
    worst,
)

LAYERS = 4
"""Least number of layers of the models."""
MEMBERS = 5
"""Members of a stack with many sentences."""

SHORT = tuple((6 - index % 6, 8 - index % 7) for index in range(20))
"""Source and target tokens of many sentences."""

LONG = 130
"""Tokens of a long target without a study; its source has a quarter as many."""
MAX_LONG = 2048
"""Largest number of tokens of a long target."""

COPIES = 4
"""Largest number of long sentences of a member; there are at least two."""
MAX_TOKENS = 2048
"""Largest number of target tokens of the long sentences of a member, if there are more than two."""

PLAIN = (int, float, str, list, tuple, dict, set)
"""Types of attributes that a pass may not change."""

BOUNDS = {torch.float64: EXACT, torch.float32: 1e-4}
"""Largest change by rounding."""


@invariant("isolation", scope="entry")
def a_target_token_changes_later_logits_of_its_sentence_alone(subject: Subject) -> Verdict:
    """A target token changes only later logits of its sentence, in training too, and a pass changes no attribute.

    The models have at least four layers. A batch has long sentences of two members, which change from different tokens
    on, or 20 sentences of each of five, of which the first changes. Each batch is evaluated and trained, one in float64
    and the other in float32.
    """
    config = subject.config
    if subject.longest is None:
        layers = {
            "encoder_layers": max(LAYERS, config.model.encoder_layers),
            "decoder_layers": max(LAYERS, config.model.decoder_layers),
        }
        config = changed(config, model=layers)
    source, time = _long_sizes(subject)
    copies = max(2, min(COPIES, MAX_TOKENS // time))
    long: Lengths = (((source, time),) * copies,) * 2
    # The sentences of member 0 change from different tokens on, the last sentence in its last token alone.
    points = [time * part // copies for part in range(1, copies)]
    points.append(time - 1)
    many: Lengths = (SHORT,) * MEMBERS
    verdicts = []
    in_evaluation = torch.float64
    in_training = torch.float32
    for lengths, first_changed in ((long, points), (many, [4])):
        stack = Subject(config, range(len(lengths)))
        for dtype, training in ((in_evaluation, False), (in_training, True)):
            stack.model.to(dtype).train(training)
            verdicts.append(_isolated(stack, lengths, first_changed))
        in_evaluation, in_training = in_training, in_evaluation
    return worst(*verdicts)


def _long_sizes(subject: Subject) -> tuple[int, int]:
    """Return the tokens of a long source and target, within the limits of encodings and styles."""
    most = MAX_LONG
    for role in subject.roles:
        for part in (subject.positional(role), subject.attention(role).style):
            limit = type(part).limit(part.options)
            if limit:
                most = min(most, limit - 1)
    source, time = subject.longest or (LONG // 4, LONG)
    source = max(1, min(source, most))
    time = max(1, min(time, most))
    if "encoder" not in subject.roles:  # the decoder reads both
        source = max(1, min(source, most - time))
    return source, subject.only_length or max(2, time)


def _isolated(subject: Subject, lengths: Lengths, points: Sequence[int]) -> Verdict:
    """Judge whether a changed target token changes later logits of its sentence alone, and a pass nothing else.

    Three passes have the same random numbers: two of a batch, which must be equal, and one of a changed batch. In it,
    the targets of the first sentences of member 0 are changed, sentence i from the token ``points[i]`` on.
    """
    model = subject.model
    dtype = next(model.parameters()).dtype
    batch = subject.random_sentences(lengths)
    changed_target = batch.target.clone()
    _, vocab_size = subject.vocab_sizes
    for sentence, point in enumerate(points):
        words = changed_target[0, sentence, point:]
        changed_target[0, sentence, point:] = next_words(words, vocab_size)
    changed_batch = replace(batch, target=changed_target)
    initial_states: dict[PerMemberRNG, Tensor] = {}
    for module in model.modules():
        if isinstance(module, PerMemberRNG):
            initial_states[module] = module.state.clone()

    def logits(sentences: SentenceBatch) -> Tensor:
        """Return the logits of a pass with the initial random numbers."""
        for rng, state in initial_states.items():
            rng.state.copy_(state)
        with torch.set_grad_enabled(model.training):  # code can depend on it
            return forward(model, sentences).detach()

    mode = "training" if model.training else "evaluation"
    where = f"{mode}, {batch.target[0].numel()} tokens, {dtype}"
    first = logits(batch)
    attributes = _attributes(model)
    second = logits(batch)
    for name, value in _attributes(model).items():
        if attributes.get(name) != value:
            return violated(
                f"a pass changes '{name}' ({where}); microbatches or a resumed run would change results"
            )
    if not torch.equal(first, second):
        return violated(f"two equal passes differ ({where})", float((first - second).abs().max()))
    change = logits(changed_batch) - first
    for sentence, point in enumerate(points):
        first_affected = point if subject.is_causal else 0
        change[0, sentence, first_affected:] = 0  # these logits may change
    quantity = f"change of earlier logits, or of logits of other sentences ({where})"
    return within(logit_changes(change, batch.target_nonpad), quantity, LOGITS, BOUNDS[dtype])


def _attributes(model: Transformer) -> dict[str, object]:
    """Return buffers, and the plain attributes of components and maskings."""
    parts: list[tuple[str, object]] = []
    for masking in model.maskings.values():
        for part in (masking, *getattr(masking, "parts", ())):
            parts.append((f"masking {type(part).__name__}", part))
    attributes: dict[str, object] = {}
    for path, module in model.named_modules():
        if not isinstance(module, PerMemberRNG):
            for name, buffer in module._buffers.items():
                attributes[f"{path}.{name}"] = buffer.tolist()
        if isinstance(module, Component):
            parts.append((path, module))
    # Positional.cached writes _cache.
    ignored = {*vars(nn.Module()), "_cache"}
    for path, part in parts:
        for name, value in vars(part).items():
            if isinstance(value, PLAIN) and name not in ignored:
                attributes[f"{path}.{name}"] = repr(value)
    return attributes
