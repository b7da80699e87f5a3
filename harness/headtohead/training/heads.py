"""What a trained model loses when heads are masked: one at a time, and all but one of a layer.

Paper: Michel, Levy & Neubig 2019, Are Sixteen Heads Really Better than One?, NeurIPS,
arXiv:1905.10650, sections 3.2 and 3.3: ``MHAtt(x) = sum_h ξ_h · Att_h(x)`` with ``ξ_h`` set to 0
for a masked head. The rows of the output projection that read a head's block are set to 0, which is
the same on every path and for every style that projects; the projection's bias stays. Copies of the
model, each with other heads masked, are scored as members of a stack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from headtohead.data import PreparedData
from headtohead.errors import UndefinedError
from headtohead.model.attention import MultiHeadAttention
from headtohead.model.transformer import Transformer
from headtohead.schema.experiment_file import HEAD_METRICS
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import RunConfig
from headtohead.training.evaluate import Write, collect, distinct_sources, teacher_forced, translate_rows
from headtohead.training.tensors import SplitTensors, pads_of

TOGETHER = 16
"""Copies of a model that are scored as one stack."""

Change = Mapping[str, float]
"""Loss in nats per token, BLEU and exact match: masked minus whole."""


@dataclass(frozen=True)
class HeadEffect:
    """What masking one head of a layer changes, and masking every head but this one."""

    role: str
    layer: int
    head: int
    without_one: Change
    only_one: Change

    def to_json(self) -> dict[str, Any]:
        """Return the effect as data, under the names that metrics have."""
        return {
            "role": self.role,
            "layer": self.layer,
            "head": self.head,
            "without-one": dict(self.without_one),
            "only-one": dict(self.only_one),
        }


@dataclass(frozen=True)
class HeadEffects:
    """All heads of a model of one member, on its test sentences."""

    whole: Change
    heads: tuple[HeadEffect, ...]

    def metrics(self) -> dict[str, float]:
        """Return what the heads of each role change, under the names of ``HEAD_METRICS``.

        ``without-one`` is the mean over heads and layers. ``only-one`` keeps in each layer the head
        with the smallest loss, as table 2 of the paper does, and is the mean over layers.
        """
        found: dict[str, float] = {}
        for role in ROLES:
            heads = [one for one in self.heads if one.role == role]
            best = [
                min((one for one in heads if one.layer == layer), key=lambda h: h.only_one["loss"])
                for layer in sorted({one.layer for one in heads})
            ]
            for name in self.whole if heads else ():
                found[f"heads/{role}/without-one/{name}"] = _mean([one.without_one[name] for one in heads])
                found[f"heads/{role}/only-one/{name}"] = _mean([one.only_one[name] for one in best])
        assert set(found) <= set(HEAD_METRICS)
        return found


Masks = tuple[int, tuple[int, ...]]
"""The number of an attention, in the order of ``attentions``, and its heads that are masked."""


def attentions(model: Transformer) -> list[MultiHeadAttention]:
    """Return a model's attentions, layer by layer, the encoder's first."""
    return [part for part in model.modules() if isinstance(part, MultiHeadAttention)]


def head_effects(model: Transformer, data: PreparedData, write: Write | None) -> HeadEffects:
    """Mask the heads of a model, one at a time and all but one, and score the test sentences.

    Args:
        model: Of one member, in evaluation mode.
        data: Its data.
        write: Translates, as `writer` returns it; None leaves out BLEU and exact match.

    Raises:
        UndefinedError: If a style has no heads to mask.
    """
    asked: list[Masks] = []
    for number, attention in enumerate(attentions(model)):
        if not attention.style.projects:
            raise UndefinedError(
                "the attention style has no output projection to mask heads in; its heads are "
                "parts of the embedding itself"
            )
        heads = range(attention.context.geometry.reading_heads)
        for head in heads:
            others = tuple(other for other in heads if other != head)
            asked += [(number, (head,)), (number, others)]
    scorer = _Scorer(model.config, data, write)
    whole = scorer.scores(masked(model, data, [(0, ())]))[0]
    scores: list[dict[str, float]] = []
    for start in range(0, len(asked), TOGETHER):
        scores += scorer.scores(masked(model, data, asked[start : start + TOGETHER]))
    changes = [{name: one[name] - whole[name] for name in whole} for one in scores]
    found = []
    for place, (number, (head,)) in enumerate(asked[::2]):
        context = attentions(model)[number].context
        effect = changes[2 * place], changes[2 * place + 1]
        found.append(HeadEffect(context.role, context.layer or 0, head, *effect))
    return HeadEffects(whole, tuple(found))


def masked(model: Transformer, data: PreparedData, masks: Sequence[Masks]) -> Transformer:
    """Return a stack of copies of a model of one member, each with other heads masked."""
    words = len(data.source_vocabulary), len(data.target_vocabulary)
    stack = Transformer(model.config, [1] * len(masks), *words)
    stack.to(next(model.parameters()))
    with torch.no_grad():
        for copies, own in zip(stack.parameters(), model.parameters(), strict=True):
            copies.copy_(own.expand_as(copies))
        for member, (number, heads) in enumerate(masks):
            attention = attentions(stack)[number]
            width = attention.context.geometry.value_width
            for head in heads:
                attention.output.weight[member, head * width : (head + 1) * width] = 0.0
    return stack.eval()


class _Scorer:
    """Scores the test sentences with every member of a stack."""

    def __init__(self, config: RunConfig, data: PreparedData, write: Write | None) -> None:
        self.config, self.data, self.write = config, data, write
        self.split = data.splits["test"]
        pads = pads_of(data.source_vocabulary, data.target_vocabulary)
        self.tensors = SplitTensors.of(
            self.split, torch.device("cpu"), shift_targets=config.quirks.shift_targets, pads=pads
        )
        self.rows = distinct_sources(self.split, config.evaluate.test_limit)

    def scores(self, stack: Transformer) -> list[dict[str, float]]:
        size = self.config.evaluate.batch_size
        forced = teacher_forced(stack, self.tensors, self.tensors.padded_batches(size))
        found = [{"loss": forced.metrics(member)["loss"]} for member in range(stack.members)]
        if self.write is not None:
            parts = list(torch.tensor(self.rows).split(size))
            written = translate_rows(stack, self.tensors, parts, self.write)
            for scores, sentences in zip(found, written, strict=True):
                values = collect(self.data, self.split, self.rows, sentences).scores().values
                scores |= {name: values[name] for name in ("bleu", "exact_match")}
        return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
