"""Head ablation: the change of scores when a head, or all other heads of a layer, are masked.

Paper: P. Michel, O. Levy, G. Neubig. "Are Sixteen Heads Really Better than One?". NeurIPS 2019,
arXiv:1905.10650, sections 3.2 and 3.3: ``MHAtt(x) = sum_h ξ_h · Att_h(x)`` with ``ξ_h`` = 0 for a
masked head. The rows of the output projection that belong to a masked head are set to 0. This is
equivalent on every path and for every style with projections; the bias of the projection is kept.
Copies of the model with different masked heads are scored as members of a stack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from headtohead.data import PreparedData
from headtohead.data.metrics import task_metrics
from headtohead.errors import UndefinedError
from headtohead.model.attention import MultiHeadAttention
from headtohead.model.transformer import Transformer
from headtohead.schema.metric import LOSS
from headtohead.schema.run_config import RunConfig
from headtohead.training.evaluate import Translator, collect, distinct_sources, teacher_forced, translate_rows
from headtohead.training.tensors import SplitTensors, pads_of

TOGETHER = 16
"""Number of copies of a model that are scored as a stack."""

Change = Mapping[str, float]
"""Differences of the loss and of the metrics of the dataset: masked minus unmasked model."""


@dataclass(frozen=True)
class HeadEffect:
    """Changes when a head of a layer is masked, and when all other heads of the layer are masked."""

    role: str
    layer: int
    head: int
    without_one: Change
    only_one: Change

    def to_json(self) -> dict[str, Any]:
        """Return the effect as JSON data, with the names of the metrics."""
        return {
            "role": self.role,
            "layer": self.layer,
            "head": self.head,
            "without-one": dict(self.without_one),
            "only-one": dict(self.only_one),
        }


@dataclass(frozen=True)
class HeadEffects:
    """Effects of all heads of a model, and the scores of the unmasked model."""

    whole: Change
    heads: tuple[HeadEffect, ...]

    def metrics(self) -> dict[str, float]:
        """Return the effects of the heads of each role, by the names of ``schema.metric.of_heads``.

        ``without-one`` is the mean over heads and layers. ``only-one`` is the mean over layers of
        the best head (smallest loss), as in table 2 of the paper.
        """
        metrics: dict[str, float] = {}
        for role in dict.fromkeys(effect.role for effect in self.heads):
            heads = [effect for effect in self.heads if effect.role == role]
            best = [
                min(
                    (effect for effect in heads if effect.layer == layer), key=lambda effect: effect.only_one[LOSS.name]
                )
                for layer in sorted({effect.layer for effect in heads})
            ]
            for name in self.whole:
                metrics[f"heads/{role}/without-one/{name}"] = _mean([effect.without_one[name] for effect in heads])
                metrics[f"heads/{role}/only-one/{name}"] = _mean([effect.only_one[name] for effect in best])
        return metrics


Masks = tuple[int, tuple[int, ...]]
"""Index of an attention in ``attentions``, and its masked heads."""


def attentions(model: Transformer) -> list[MultiHeadAttention]:
    """Return the attentions of a model layer by layer, those of the encoder first."""
    return [part for part in model.modules() if isinstance(part, MultiHeadAttention)]


def head_effects(model: Transformer, data: PreparedData, translator: Translator | None) -> HeadEffects:
    """Score the test sentences with each head masked, and with all other heads of its layer masked.

    Args:
        model: A stack with one member, in evaluation mode.
        data: The data of the model.
        translator: From ``evaluate.translator``; None omits the metrics of the dataset.

    Raises:
        UndefinedError: If an attention style has no output projection.
    """
    all_masks: list[Masks] = []
    for number, attention in enumerate(attentions(model)):
        if not attention.style.projects:
            raise UndefinedError(
                "the attention style has no output projection in which heads could be masked; use a "
                "style with projections"
            )
        heads = range(attention.context.geometry.output_heads)
        for head in heads:
            others = tuple(other for other in heads if other != head)
            all_masks += [(number, (head,)), (number, others)]
    scorer = _Scorer(model.config, data, translator)
    whole = scorer.scores(masked(model, data, [(0, ())]))[0]
    scores: list[dict[str, float]] = []
    for start in range(0, len(all_masks), TOGETHER):
        scores += scorer.scores(masked(model, data, all_masks[start : start + TOGETHER]))
    changes = [{name: values[name] - whole[name] for name in whole} for values in scores]
    effects = []
    for index, (number, (head,)) in enumerate(all_masks[::2]):
        context = attentions(model)[number].context
        without_one, only_one = changes[2 * index], changes[2 * index + 1]
        effects.append(HeadEffect(context.role, context.layer or 0, head, without_one, only_one))
    return HeadEffects(whole, tuple(effects))


def masked(model: Transformer, data: PreparedData, masks: Sequence[Masks]) -> Transformer:
    """Return a stack of copies of a model with one member, with the given heads masked in each copy."""
    words = len(data.source_vocabulary), len(data.target_vocabulary)
    stack = Transformer(model.config, [1] * len(masks), *words)
    stack.to(next(model.parameters()))
    weights = model.member_state(0)
    with torch.no_grad():
        for member, (number, heads) in enumerate(masks):
            stack.load_member(member, weights)
            attention = attentions(stack)[number]
            width = attention.context.geometry.value_width
            for head in heads:
                attention.output.weight[member, head * width : (head + 1) * width] = 0.0
    return stack.eval()


class _Scorer:
    """Scores the test sentences with every member of a stack."""

    def __init__(self, config: RunConfig, data: PreparedData, translator: Translator | None) -> None:
        self.config, self.data, self.translator = config, data, translator
        self.split = data.splits["test"]
        pads = pads_of(data.source_vocabulary, data.target_vocabulary)
        self.tensors = SplitTensors.of(
            self.split, torch.device("cpu"), shift_targets=config.quirks.shift_targets, pads=pads
        )
        self.rows = distinct_sources(self.split, config.evaluate.test_limit)

    def scores(self, stack: Transformer) -> list[dict[str, float]]:
        size = self.config.evaluate.batch_size
        forced = teacher_forced(stack, self.tensors, self.tensors.padded_batches(size))
        scores = [{LOSS.name: forced.metrics(member)[LOSS.name]} for member in range(stack.members)]
        if self.translator is not None:
            parts = list(torch.tensor(self.rows).split(size))
            translations = translate_rows(stack, self.tensors, parts, self.translator)
            for values, sentences in zip(scores, translations, strict=True):
                task = task_metrics(self.config.data.dataset)
                values |= collect(self.data, self.split, self.rows, sentences).scores(task)
        return scores


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
