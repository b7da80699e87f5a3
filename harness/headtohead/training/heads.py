"""Head ablation: the change of scores when a head, or all other heads of a layer, are masked.

Paper: P. Michel, O. Levy, G. Neubig. "Are Sixteen Heads Really Better than One?". NeurIPS 2019,
arXiv:1905.10650, sections 3.2 and 3.3: ``MHAtt(x) = sum_h ξ_h · Att_h(x)`` with ``ξ_h`` = 0 for a
masked head. The rows of the output projection that belong to a masked head are set to 0. This is
equivalent on every path and for every style with projections; the bias of the projection is kept.
Copies of the model with different masked heads are scored as members of a stack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from headtohead.data import PreparedData
from headtohead.data.metrics import task_metrics
from headtohead.errors import UndefinedError
from headtohead.model.transformer import Transformer
from headtohead.schema.metric import LOSS
from headtohead.training.evaluate import Translator, collect, distinct_sources, score
from headtohead.training.tensors import SplitTensors

TOGETHER = 16
"""Number of copies of a model that are scored as a stack."""

Masks = tuple[int, tuple[int, ...]]
"""Index of an attention in ``Transformer.attentions``, and its masked heads."""

Scores = Mapping[str, float]
"""The loss and the metrics of the dataset."""


def head_effects(
    model: Transformer, data: PreparedData, translate: Translator | None
) -> tuple[Scores, list[dict[str, Any]]]:
    """Score the test sentences with each head masked, and with all other heads of its layer masked.

    Args:
        model: A stack with one member, in evaluation mode.
        data: The data of the model.
        translate: From ``evaluate.translator``; None omits the metrics of the dataset.

    Returns:
        The scores of the unmasked model, and a record of each head for heads.json.

    Raises:
        UndefinedError: If an attention style has no output projection.
    """
    if not all(attention.style.projects for attention in model.attentions):
        raise UndefinedError(
            "the attention style has no output projection in which heads could be masked; use a style with projections"
        )
    split, config = data.splits["test"], model.config
    pads = data.source_vocabulary.pad, data.target_vocabulary.pad
    tensors = SplitTensors.of(split, torch.device("cpu"), shift_targets=config.quirks.shift_targets, pads=pads)
    rows = distinct_sources(split, config.evaluate.test_limit)
    task = task_metrics(config.data.dataset)

    def scores(masks: Sequence[Masks]) -> list[dict[str, float]]:
        scored = score(masked(model, data, masks), tensors, rows, translate)
        found = [{LOSS.name: scored.forced.metrics(member)[LOSS.name]} for member in range(len(masks))]
        for values, translations in zip(found, scored.translations or (), strict=False):
            values |= collect(data, split, rows, translations).scores(task)
        return found

    whole = scores([(0, ())])[0]
    contexts = [attention.context for attention in model.attentions]
    heads_of = [range(context.geometry.output_heads) for context in contexts]
    heads = [(number, head) for number, every in enumerate(heads_of) for head in every]
    masks: list[Masks] = []
    for number, head in heads:
        others = tuple(other for other in heads_of[number] if other != head)
        masks += [(number, (head,)), (number, others)]
    parts = [masks[start : start + TOGETHER] for start in range(0, len(masks), TOGETHER)]
    changes = [{name: values[name] - whole[name] for name in whole} for part in parts for values in scores(part)]
    return whole, [
        {
            "role": contexts[number].role,
            "layer": contexts[number].layer or 0,
            "head": head,
            "without-one": without_one,
            "only-one": only_one,
        }
        for (number, head), without_one, only_one in zip(heads, changes[::2], changes[1::2], strict=True)
    ]


def head_metrics(heads: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the effects of the heads of each role, by the names of ``schema.metric.of_heads``.

    ``without-one`` is the mean over heads and layers. ``only-one`` is the mean over layers of
    the best head (smallest loss), as in table 2 of the paper.
    """
    metrics: dict[str, float] = {}
    for role in dict.fromkeys(head["role"] for head in heads):
        own = [head for head in heads if head["role"] == role]
        layers = [[head for head in own if head["layer"] == layer] for layer in sorted({h["layer"] for h in own})]
        best = [min(layer, key=lambda head: head["only-one"][LOSS.name]) for layer in layers]
        for effect, chosen in (("without-one", own), ("only-one", best)):
            for name in own[0][effect]:
                metrics[f"heads/{role}/{effect}/{name}"] = sum(head[effect][name] for head in chosen) / len(chosen)
    return metrics


def masked(model: Transformer, data: PreparedData, masks: Sequence[Masks]) -> Transformer:
    """Return a stack of copies of a model with one member, with the given heads masked in each copy."""
    words = len(data.source_vocabulary), len(data.target_vocabulary)
    stack = Transformer(model.config, [1] * len(masks), *words)
    stack.to(next(model.parameters()))
    weights = model.member_state(0)
    with torch.no_grad():
        for member, (number, heads) in enumerate(masks):
            stack.load_member(member, weights)
            attention = stack.attentions[number]
            width = attention.context.geometry.value_width
            for head in heads:
                attention.output.weight[member, head * width : (head + 1) * width] = 0.0
    return stack.eval()
