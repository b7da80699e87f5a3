"""Head ablation: the change of scores when a head, or all other heads of a layer, are masked.

Paper: P. Michel, O. Levy, G. Neubig. "Are Sixteen Heads Really Better than One?". NeurIPS 2019,
arXiv:1905.10650, sections 3.2 and 3.3: ``MHAtt(x) = sum_h ξ_h · Att_h(x)`` with ``ξ_h`` = 0 for a
masked head. The rows of the output projection that belong to a masked head are set to 0. This is
equivalent on every path and for every style with projections; the bias of the projection is kept.
Copies of the model with different masked heads are scored as members of a stack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from headtohead.data import PreparedData
from headtohead.data.metrics import task_metrics
from headtohead.errors import HeadToHeadError, UndefinedError
from headtohead.execution.loaded import load
from headtohead.model.transformer import Transformer
from headtohead.schema.metric import LOSS
from headtohead.storage.attention_maps import read_probes
from headtohead.storage.run import HEADS
from headtohead.storage.run_directory import RunDirectory, leased
from headtohead.training.evaluate import Translator, collect, score, translator
from headtohead.training.loop import split_tensors

TOGETHER = 16
"""Number of copies of a model that are scored as a stack."""

Mask = tuple[int, Sequence[int]]
"""Index of an attention in ``Transformer.attentions``, and its masked heads."""


def ablate_heads(path: Path, *, decode: bool = True, fresh: bool = False) -> dict[str, Any]:
    """Return the effect of masking each head of a run, and write it into ``heads.json`` of the run directory.

    Without ``fresh``, a stored file is returned and nothing is written, except if ``decode`` asks for the metrics of
    the dataset, the file lacks them, and ``evaluate.decode`` of the run is not ``none``.

    Args:
        path: The run directory.
        decode: Whether to translate too, for the metrics of the dataset.
        fresh: Whether to measure a run that already has the file.

    Raises:
        HeadToHeadError: If the run is not DONE, damaged or cannot be loaded; if it was imported without sentences; if
            its attention style has no heads to mask or its attention maps lack a head; if its vocabulary has no <sos>
            or <eos> to translate with; or if another process writes the run.
        LeaseLost: If another process takes over the run before the result is written.
    """
    stored = None if fresh else RunDirectory(path).heads
    # Without translations, the loss is the only score.
    if stored is not None and (not decode or len(stored["whole"]) > 1):
        return dict(stored)
    with leased(path) as run_writer:
        run = load(path)
        if stored is not None and run.config.evaluate.decode == "none":
            return dict(stored)
        if "test" not in run.data.splits:
            raise HeadToHeadError(
                f"run '{path.name}' was imported without sentences; ablating heads requires the test sentences of "
                "a run that was trained by headtohead"
            )
        translate = None
        if decode:
            words = run.data.target_vocabulary
            translate = translator(run.config.evaluate, words, run.decoding_limit)
        whole, heads = head_effects(run.model, run.data, translate)
        _add_map_statistics(path, heads)
        record = {
            "format": 1,
            "split": "test",
            "whole": whole,
            "heads": heads,
            "metrics": head_metrics(heads),
        }
        run_writer.add_result(HEADS, record)
    return record


def _add_map_statistics(path: Path, heads: Sequence[dict[str, Any]]) -> None:
    """Add the mean entropy and distance over a run's probe sentences to the record of each head, in place.

    Probes in which a head has no value are left out; a head without a value in any probe gets no such key.

    Args:
        path: The run directory.
        heads: Records with ``role``, ``layer`` and ``head``.

    Raises:
        HeadToHeadError: If the attention maps lack a head, or are damaged.
    """
    probes = read_probes(path)
    for head in heads:
        try:
            maps = [probe["heads"][head["role"]][head["layer"]][head["head"]] for probe in probes]
        except (IndexError, KeyError) as error:
            raise HeadToHeadError(
                f"the attention maps of run '{path.name}' lack a head of its model"
            ) from error
        for name in ("entropy", "distance"):
            values = []
            for statistics in maps:
                if statistics.get(name) is not None:
                    values.append(statistics[name])
            if values:
                head[name] = sum(values) / len(values)


def head_effects(
    model: Transformer, data: PreparedData, translate: Translator | None
) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Score the test sentences with each head masked, and with all other heads of its layer masked.

    Args:
        model: A stack with one member, in evaluation mode.
        data: The data of the model.
        translate: From ``evaluate.translator``; None omits the metrics of the dataset.

    Returns:
        The scores of the unmasked model by metric, and a record of each head for heads.json with its role, layer and
        head. ``without-one`` has the changes of the scores if the head is masked, ``only-one`` those if all other heads
        of its layer are masked. The scores are the loss and, with ``translate``, the metrics of the dataset.

    Raises:
        UndefinedError: If an attention style has no output projection.
        KeyError: If the data have no test split.
    """
    if not all(attention.style.projects for attention in model.attentions):
        raise UndefinedError(
            "the attention style has no output projection in which heads could be masked; use a style with projections"
        )
    records: list[dict[str, Any]] = []
    masks: list[Mask] = []
    for number, attention in enumerate(model.attentions):
        context = attention.context
        heads = range(context.geometry.output_heads)
        for head in heads:
            masks.append((number, [head]))
            masks.append((number, [other for other in heads if other != head]))
            records.append({"role": context.role, "layer": context.layer or 0, "head": head})
    (whole,) = _scores(model, data, [(0, ())], translate)
    changes = []
    for start in range(0, len(masks), TOGETHER):
        for scores in _scores(model, data, masks[start : start + TOGETHER], translate):
            changes.append({name: scores[name] - whole[name] for name in whole})
    in_order_of_masks = iter(changes)  # two for each head
    for record in records:
        record["without-one"] = next(in_order_of_masks)
        record["only-one"] = next(in_order_of_masks)
    return whole, records


def _scores(
    model: Transformer, data: PreparedData, masks: Sequence[Mask], translate: Translator | None
) -> list[dict[str, float]]:
    """Return the test scores of copies of a model by metric, one mapping for each copy.

    The loss is over all test sentences; with ``translate``, the metrics of the dataset are over its distinct sources,
    at most ``evaluate.test_limit``.

    Args:
        model: A stack with one member.
        data: The data of the model.
        masks: The masked heads of each copy; not empty.
        translate: Translates the sources, or None.
    """
    config = model.config
    split = data.splits["test"]
    tensors = split_tensors(config, data, torch.device("cpu"), ("test",))["test"]
    rows = split.distinct_sources(config.evaluate.test_limit)
    scored = score(with_masks(model, data, masks), tensors, rows, translate)
    scores = []
    for member in range(len(masks)):
        scores.append({LOSS.name: scored.forced.metrics(member)[LOSS.name]})
    if scored.translations is not None:
        task = task_metrics(config.data.dataset)
        for member_scores, translations in zip(scores, scored.translations, strict=True):
            member_scores |= collect(data, split, rows, translations).scores(task)
    return scores


def head_metrics(heads: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the effects of the heads of each role, by the names of ``schema.metric.of_heads``.

    ``without-one`` is the mean over heads and layers. ``only-one`` is the mean over layers of
    the best head (smallest loss; the first of equal ones), as in table 2 of the paper. Without heads, the result is
    empty.

    Args:
        heads: The records of `head_effects`. All heads of a role have the metrics of its first one (`KeyError`).
    """
    metrics: dict[str, float] = {}
    for role in dict.fromkeys(head["role"] for head in heads):
        heads_of_role = [head for head in heads if head["role"] == role]
        best_by_layer: dict[int, Mapping[str, Any]] = {}
        for head in heads_of_role:
            best = best_by_layer.setdefault(head["layer"], head)
            if head["only-one"][LOSS.name] < best["only-one"][LOSS.name]:
                best_by_layer[head["layer"]] = head
        best_heads = [best_by_layer[layer] for layer in sorted(best_by_layer)]
        for effect, averaged in (("without-one", heads_of_role), ("only-one", best_heads)):
            for name in averaged[0][effect]:
                total = sum(head[effect][name] for head in averaged)
                metrics[f"heads/{role}/{effect}/{name}"] = total / len(averaged)
    return metrics


def with_masks(model: Transformer, data: PreparedData, masks: Sequence[Mask]) -> Transformer:
    """Return a stack of copies of a model with one member, with the given heads masked in each copy.

    The model is not changed. The stack is in evaluation mode, with the device and the type of the model's weights.
    Precondition: the attentions with masked heads have an output projection, as `head_effects` checks.

    Args:
        model: A stack with one member.
        data: The data of the model, for the sizes of the vocabularies.
        masks: For each copy, an attention and its masked heads.
    """
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
