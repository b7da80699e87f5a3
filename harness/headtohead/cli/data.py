"""``h2h data``: download datasets and describe them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from headtohead.cli.group import SuggestingGroup
from headtohead.cli.options import load_plugins, plugin_option, set_option
from headtohead.escaping import single_line
from headtohead_judge.output import echo

if TYPE_CHECKING:
    from headtohead.data import PreparedData, Side
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

    load_plugins()
    corpus = read_corpus(_config(dataset, overrides), cache_root())
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

    load_plugins()
    data = prepare(_config(target, overrides), cache_root())
    for label, text in lines(data):
        echo(f"{label:<12}{text}")


def lines(data: PreparedData) -> list[tuple[str, str]]:
    """Return the lines that ``stats`` prints, as pairs of label and text."""
    record = data.record
    has_sources = any(data.splits["train"].source_text)
    sides: tuple[Side, ...] = ("source", "target") if has_sources else ("target",)
    lines = _lines_on_pairs(data, has_sources)
    lines += _lines_on_scores(record)
    sizes = [f"{side} {record['vocabulary'][side]}" for side in sides]
    lines.append(("vocabulary", f"{', '.join(sizes)}, with special tokens"))
    unknown = record["unk_rate"]["test"]
    rates = [f"{side} {100 * unknown[side]:.2f} %" for side in sides]
    lines.append(("unknown", f"{', '.join(rates)} of test"))
    if record.get("labels"):
        lines.append(("labels", _counted(record["labels"])))
    lines.append(("example", _example(data, has_sources)))
    for side in sides:
        lines.append((side, lengths(data, side)))
    lines.append(("data_hash", data.data_hash))
    lines.append(("licence", record["licence"]))
    lines.append(("citation", record["citation"]))
    for note in record["notes"]:
        lines.append(("note", note))
    return lines


def _lines_on_pairs(data: PreparedData, has_sources: bool) -> list[tuple[str, str]]:
    """Return the lines on dataset, number of examples, split and leaks."""
    from headtohead.storage.experiment import examples_of, leaked_part, leaked_validation

    record = data.record
    source, target = record["languages"]
    languages = f"{source} to {target}" if has_sources else target
    counts = record["counts"]
    total = sum(counts.values())
    if record["split"] == "nothing-held-out":  # all splits contain the same pairs
        total = max(counts.values())
    dropped = [f"{n} {reason.replace('_', '-')}" for reason, n in record["dropped"].items()]
    validation_leaks = leaked_validation(record)
    is_leaky = record["leaky"] or any(leak.is_serious for leak in validation_leaks)
    leaks = [leaked_part(record), *(leak.clause for leak in validation_leaks)]
    return [
        ("dataset", f"{record['dataset']}, {languages}, normalise {record['normalise']}"),
        (examples_of(record), f"{total}: {_counted(counts)}"),
        ("dropped", ", ".join(dropped)),
        ("split", f"{record['split']}, leaky" if is_leaky else record["split"]),
        ("leak", "; ".join(leaks)),
    ]


def _lines_on_scores(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the lines on scores that need no training, or that no training can exceed."""
    lines: list[tuple[str, str]] = []
    bound = record["bag_of_words_upper_bound"]
    if bound is not None:
        order = "exact match on test for a model without word order"
        lines.append(("upper bound", f"{bound:.3f} {order}"))
    losses = record.get("losses_without_model")
    if losses:
        listed = [f"{name} model {loss:.3f} nats" for name, loss in losses.items()]
        lines.append(("test loss", ", ".join(listed)))
    else:
        reachable = record["vocabulary_upper_bound"]
        text = f"at most {reachable:.3f} on test with these vocabularies"
        lines.append(("exact match", text))
    return lines


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{part} {count}" for part, count in counts.items())


def _example(data: PreparedData, has_sources: bool) -> str:
    """Return the first pair of train, which shows exchanged columns and wrong encodings."""
    train = data.splits["train"]
    target = single_line(data.tokenisers["target"].unit.plain_text(train.target_text[0]))
    if not has_sources:
        return target
    return f"{single_line(train.source_text[0])} → {target}"


def lengths(data: PreparedData, side: Side) -> str:
    """Return a summary of the number of words per sentence, or of tokens per block, in all splits."""
    import numpy as np

    name = "tokens per block" if data.tokenisers["target"].unit.is_text else "words per sentence"
    texts: list[str] = []
    for split in data.splits.values():
        texts += split.source_text if side == "source" else split.target_text
    counts = np.array([len(text.split()) for text in texts])
    p50, p95, p99 = np.percentile(counts, [50, 95, 99], method="nearest")
    return f"{name}: mean {counts.mean():.2f}, p50 {p50}, p95 {p95}, p99 {p99}, max {counts.max()}"


def _config(target: str, overrides: Sequence[str]) -> DataConfig:
    """Return the data section of a dataset, or of the baseline of an experiment file."""
    from headtohead.config.loading import load_file
    from headtohead.planning.design import expand
    from headtohead.plugins.registry import find_dataset
    from headtohead.testing.checks.entries import dataset_config

    if not target.endswith((".yaml", ".yml")):
        find_dataset(target)  # its error lists the datasets
        return dataset_config(target, overrides)
    loaded = load_file(target, overrides, max_runs=sys.maxsize)
    if not any(block.between for block in loaded.file.design):
        # The baseline does not depend on the design.
        baseline_only: dict[str, Any] = {"design": [], "exclude": [], "contrasts": []}
        loaded = replace(loaded, file=loaded.file.model_copy(update=baseline_only))
    loaded.load_plugins()
    design = expand(loaded)
    return design.variant(design.baseline).config.data
