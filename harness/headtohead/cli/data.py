"""``h2h data``: download datasets and describe them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headtohead.cli import SuggestingGroup
from headtohead.cli.options import cache_option, load_plugins, plugin_option
from headtohead.cli.output import echo
from headtohead.escaping import single_line

if TYPE_CHECKING:
    from headtohead.data import PreparedData
    from headtohead.plugins.registry import Registry
    from headtohead.schema.run_config import DataConfig

set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Set a field of the data section, for example pair=eng-spa or split=row.",
)


@click.group("data", cls=SuggestingGroup)
def command() -> None:
    """Download datasets and describe them."""


@command.command()
@click.argument("dataset")
@set_option
@cache_option
@plugin_option
def fetch(dataset: str, overrides: tuple[str, ...], cache: Path | None) -> None:
    """Download DATASET into the cache and check that it can be read."""
    from headtohead.data import cache_root, read_corpus

    registry = load_plugins()
    folder = cache or cache_root()
    corpus = read_corpus(_dataset_data(dataset, overrides, registry), folder, registry=registry)
    source, target = corpus.languages
    echo(f"{dataset}: {len(corpus.pairs)} pairs, {source} to {target}, read from {folder}")
    echo(f"licence: {corpus.licence}")
    echo(f"citation: {corpus.citation}")


@command.command()
@click.argument("target", metavar="DATASET|EXPERIMENT")
@set_option
@cache_option
@plugin_option
def stats(target: str, overrides: tuple[str, ...], cache: Path | None) -> None:
    """Show sizes, sentence lengths, leakage and score bound of a dataset, or of an experiment's baseline.

    With an experiment file, --set expects full paths such as data.split=row. With data.seed: per-run, the data of the
    first seed is shown.
    """
    from headtohead.data import cache_root, prepare

    registry = load_plugins()
    read_config = _experiment_data if target.endswith((".yaml", ".yml")) else _dataset_data
    config = read_config(target, overrides, registry)
    for label, text in lines(prepare(config, cache or cache_root(), registry=registry)):
        echo(f"{label:<12}{text}")


def lines(data: PreparedData) -> list[tuple[str, str]]:
    """Return the lines that ``stats`` prints, as pairs of label and text."""
    record = data.record
    source, target = record["languages"]
    parts = ", ".join(f"{part} {count}" for part, count in record["counts"].items())
    dropped = ", ".join(f"{n} {why.replace('_', '-')}" for why, n in record["dropped"].items())
    sizes, unknown = record["vocabulary"], record["unk_rate"]["test"]
    bound = record["bag_of_words_upper_bound"]
    return [
        ("dataset", f"{record['dataset']}, {source} to {target}, normalise {record['normalise']}"),
        ("pairs", f"{_pairs(record)}: {parts}"),
        ("dropped", dropped),
        ("split", f"{record['split']}{', leaky' if record['leaky'] else ''}"),
        ("leak", f"{record['leak']:.1%} of test pairs have a source sentence that train has too"),
        ("upper bound", f"{bound:.3f} exact match on test for a model without word order"),
        ("exact match", f"at most {record['vocabulary_upper_bound']:.3f} on test with these vocabularies"),
        ("vocabulary", f"source {sizes['source']}, target {sizes['target']} (with {_specials(data)} special tokens)"),
        ("unknown", f"source {unknown['source']:.2%}, target {unknown['target']:.2%} of test"),
        ("example", _example(data)),
        ("source", lengths([text for s in data.splits.values() for text in s.source_text])),
        ("target", lengths([text for s in data.splits.values() for text in s.target_text])),
        ("data_hash", data.data_hash),
        ("licence", record["licence"]),
        ("citation", record["citation"]),
        *(("note", note) for note in record["notes"]),
    ]


def _pairs(record: Mapping[str, Any]) -> int:
    """Return the number of distinct pairs: with ``nothing-held-out`` all splits contain the same pairs."""
    counts = record["counts"].values()
    return max(counts) if record["split"] == "nothing-held-out" else sum(counts)


def _example(data: PreparedData) -> str:
    """Return the first training pair, which shows exchanged columns and wrong encodings."""
    train = data.splits["train"]
    return f"{single_line(train.source_text[0])} → {single_line(train.target_text[0])}"


def _specials(data: PreparedData) -> str:
    """Return the numbers of special tokens of source and target, or a single number if they are equal."""
    from headtohead.data import SPECIALS

    counts = [sum(word in data.vocabulary(side).words for word in SPECIALS) for side in ("source", "target")]
    return " and ".join(str(count) for count in dict.fromkeys(counts))


def lengths(texts: Sequence[str]) -> str:
    """Return a summary of the number of words per sentence."""
    import numpy as np

    counts = np.array([len(text.split()) for text in texts])
    p50, p95, p99 = np.percentile(counts, [50, 95, 99], method="nearest")
    return f"words per sentence: mean {counts.mean():.2f}, p50 {p50}, p95 {p95}, p99 {p99}, max {counts.max()}"


def _dataset_data(dataset: str, overrides: Sequence[str], registry: Registry) -> DataConfig:
    """Resolve a dataset's name and the fields of ``--set``."""
    from headtohead.config.builder import resolve
    from headtohead.config.yaml_text import parse
    from headtohead.errors import HeadToHeadError

    registry.dataset(dataset)
    section: dict[str, Any] = {"dataset": dataset}
    for text in overrides:
        field, equals, value = text.partition("=")
        if not equals:
            raise HeadToHeadError(f"--set {text}: expected FIELD=VALUE, such as pair=eng-spa")
        section[field.removeprefix("data.")] = parse(value, f"--set {text}")[0]
    return resolve({"data": section, "train": {"epochs": 1}}, registry, "--set").data


def _experiment_data(path: str, overrides: Sequence[str], registry: Registry) -> DataConfig:
    from headtohead.config.loading import load_file
    from headtohead.planning.design import expand

    loaded = load_file(path, overrides, max_runs=sys.maxsize)
    if not any(block.between for block in loaded.file.design):
        # The baseline does not depend on the design.
        baseline_only: dict[str, Any] = {"design": [], "exclude": [], "contrasts": []}
        loaded = replace(loaded, file=loaded.file.model_copy(update=baseline_only))
    design = expand(loaded, loaded.load_plugins())
    return design.variant(design.baseline).config.for_seed(loaded.seeds[0]).data
