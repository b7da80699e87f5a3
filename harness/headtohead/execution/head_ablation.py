"""``heads.json`` of a finished run: the effect of masking each head, with statistics of its attention maps."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from headtohead.errors import HeadToHeadError
from headtohead.execution.loaded import LoadedRun, load
from headtohead.storage.attention_maps import read_probes
from headtohead.storage.run import HEADS
from headtohead.storage.run_directory import RunDirectory, leased
from headtohead.training.evaluate import translator
from headtohead.training.heads import head_effects, head_metrics


def masked_heads(path: Path, *, decode: bool = True, fresh: bool = False) -> dict[str, Any]:
    """Return the effect of masking each head of a run, and write it into the run directory.

    Args:
        path: The run directory.
        decode: Whether to translate too, for the metrics of the dataset.
        fresh: Whether to measure a run that already has the file.

    Raises:
        HeadToHeadError: If the run cannot be loaded, its attention style has no heads to mask, or another
            process writes the run.
    """
    stored = None if fresh else RunDirectory(path).heads
    if stored is not None and (not decode or len(stored["whole"]) > 1):
        return dict(stored)
    with leased(path) as run_writer:
        run = load(path)
        if stored is not None and run.config.evaluate.decode == "none":
            return dict(stored)
        record = _measure(run, decode)
        run_writer.add_result(HEADS, record)
        return record


def _measure(run: LoadedRun, decode: bool) -> dict[str, Any]:
    if "test" not in run.data.splits:
        raise HeadToHeadError(
            f"run '{run.path.name}' was imported without sentences; ablating heads requires the test sentences of a "
            "run that was trained by headtohead"
        )
    evaluate = run.config.evaluate
    translate = translator(evaluate, run.data.target_vocabulary, run.decoding_limit) if decode else None
    whole, heads = head_effects(run.model, run.data, translate)
    statistics = _map_statistics(run.path)
    heads = [head | statistics.get((head["role"], head["layer"], head["head"]), {}) for head in heads]
    return {"format": 1, "split": "test", "whole": dict(whole), "heads": heads, "metrics": head_metrics(heads)}


def _map_statistics(path: Path) -> dict[tuple[str, int, int], dict[str, float]]:
    """Return entropy and mean distance of each head, averaged over the recorded sentences."""
    values: defaultdict[tuple[str, int, int], defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for probe in read_probes(path):
        for role, layers in probe["heads"].items():
            for layer, heads in enumerate(layers):
                for head, statistics in enumerate(heads):
                    for name, value in statistics.items():
                        if isinstance(value, float | int):
                            values[role, layer, head][name].append(value)
    return {
        key: {name: sum(numbers) / len(numbers) for name, numbers in by_name.items()} for key, by_name in values.items()
    }
