"""``h2h data``: download datasets and describe them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from headtohead.cli.group import SuggestingGroup
from headtohead.cli.options import load_plugins, plugin_option, set_option
from headtohead.escaping import single_line
from headtohead_judge.output import echo

if TYPE_CHECKING:
    from headtohead.data import PreparedData
    from headtohead.plugins.registry import Registry
    from headtohead.schema.run_config import DataConfig


@click.group("data", cls=SuggestingGroup)
def command() -> None:
    """Download datasets and describe them."""


@command.command()
@click.argument("dataset")
@set_option("the data section", "pair=eng-spa or split=row")
@plugin_option
def fetch(dataset: str, overrides: tuple[str, ...]) -> None:
    """Download DATASET into the cache and check that it can be read."""
    from headtohead.data import cache_root, read_corpus

    registry = load_plugins()
    corpus = read_corpus(_config(dataset, overrides, registry), cache_root(), registry=registry)
    source, target = corpus.languages
    echo(f"{dataset}: {len(corpus.pairs)} pairs, {source} to {target}, read from {cache_root()}")
    echo(f"licence: {corpus.licence}")
    echo(f"citation: {corpus.citation}")


@command.command()
@click.argument("target", metavar="DATASET|EXPERIMENT")
@set_option("the data section", "pair=eng-spa or split=row")
@plugin_option
def stats(target: str, overrides: tuple[str, ...]) -> None:
    """Show sizes, sentence lengths, leakage and score bound of a dataset, or of an experiment's baseline.

    With an experiment file, --set expects full paths such as data.split=row.
    """
    from headtohead.data import cache_root, prepare

    registry = load_plugins()
    config = _config(target, overrides, registry)
    data = prepare(config, cache_root(), registry=registry)
    for label, text in lines(data):
        echo(f"{label:<12}{text}")


def lines(data: PreparedData) -> list[tuple[str, str]]:
    """Return the lines that ``stats`` prints, as pairs of label and text."""
    from headtohead.storage.experiment import examples_of, leaked_part, leaked_validation

    record, train, whole = data.record, data.splits["train"], data.splits.values()
    source, target = record["languages"]
    counts = record["counts"]
    # With nothing-held-out, all splits contain the same pairs.
    total = (max if record["split"] == "nothing-held-out" else sum)(counts.values())
    sizes, unknown = record["vocabulary"], record["unk_rate"]["test"]
    has_sources, bound, labels = (
        any(train.source_text),
        record["bag_of_words_upper_bound"],
        record.get("labels"),
    )
    order = "exact match on test for a model without word order"
    sides = ("source", "target") if has_sources else ("target",)
    example = [data.tokenisers["target"].unit.readable(train.target_text[0])]
    if has_sources:
        example = [train.source_text[0], *example]
    texts = {
        side: [text for split in whole for text in getattr(split, f"{side}_text")] for side in sides
    }
    validation_leaks = leaked_validation(record)
    is_leaky = record["leaky"] or any(leak.is_serious for leak in validation_leaks)
    name = "tokens per block" if data.tokenisers["target"].unit.is_text else "words per sentence"
    return [
        (
            "dataset",
            f"{record['dataset']}, {f'{source} to ' * has_sources}{target}, normalise {record['normalise']}",
        ),
        (
            examples_of(record),
            f"{total}: {', '.join(f'{part} {count}' for part, count in counts.items())}",
        ),
        (
            "dropped",
            ", ".join(f"{n} {why.replace('_', '-')}" for why, n in record["dropped"].items()),
        ),
        ("split", f"{record['split']}{', leaky' if is_leaky else ''}"),
        ("leak", "; ".join([leaked_part(record), *(leak.clause for leak in validation_leaks)])),
        *([] if bound is None else [("upper bound", f"{bound:.3f} {order}")]),
        ("test loss", ", ".join(f"{name} model {loss:.3f} nats" for name, loss in losses.items()))
        if (losses := record.get("losses_without_model"))
        else (
            "exact match",
            f"at most {record['vocabulary_upper_bound']:.3f} on test with these vocabularies",
        ),
        (
            "vocabulary",
            f"{', '.join(f'{side} {sizes[side]}' for side in sides)}, with special tokens",
        ),
        (
            "unknown",
            f"{', '.join(f'{side} {100 * unknown[side]:.2f} %' for side in sides)} of test",
        ),
        *(
            [("labels", ", ".join(f"{part} {count}" for part, count in labels.items()))]
            if labels
            else []
        ),
        # A pair shows exchanged columns and wrong encodings.
        ("example", " → ".join(map(single_line, example))),
        *((side, lengths(texts[side], name)) for side in sides),
        ("data_hash", data.data_hash),
        ("licence", record["licence"]),
        ("citation", record["citation"]),
        *(("note", note) for note in record["notes"]),
    ]


def lengths(texts: Sequence[str], name: str) -> str:
    """Return a summary of the number of words per sentence, or of tokens per block."""
    import numpy as np

    counts = np.array([len(text.split()) for text in texts])
    p50, p95, p99 = np.percentile(counts, [50, 95, 99], method="nearest")
    return f"{name}: mean {counts.mean():.2f}, p50 {p50}, p95 {p95}, p99 {p99}, max {counts.max()}"


def _config(target: str, overrides: Sequence[str], registry: Registry) -> DataConfig:
    """Return the data section of a dataset, or of the baseline of an experiment file."""
    from headtohead.config.loading import load_file
    from headtohead.planning.design import expand
    from headtohead.testing.checks.entries import dataset_config

    if not target.endswith((".yaml", ".yml")):
        registry.dataset(target)
        return dataset_config(target, registry, overrides)
    loaded = load_file(target, overrides, max_runs=sys.maxsize)
    if not any(block.between for block in loaded.file.design):
        # The baseline does not depend on the design.
        baseline_only: dict[str, Any] = {"design": [], "exclude": [], "contrasts": []}
        loaded = replace(loaded, file=loaded.file.model_copy(update=baseline_only))
    loaded.load_plugins()
    design = expand(loaded)
    return design.variant(design.baseline).config.data
