"""The set-up of an experiment: a line for the first screen, and the complete configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headtohead.analysis.study import Analysis
from headtohead.report.blocks import Block, Definitions, Details, Heading, Text
from headtohead.report.tuning import length_of, variants_at_the_edge
from headtohead.schema.run_config import TrainConfig
from headtohead.storage.experiment import VariantRecord
from headtohead.storage.metrics import label, show_count

MOST_VALUES = 4
"""Maximum number of values that are listed; with more, the smallest and the largest number or a count."""

MOST_ENTRIES = 6
"""Maximum number of plugin entries with an open list of descriptions; a longer list is folded."""

LEARNING_RATE = "train.lr"


def setup_line(analysis: Analysis) -> str:
    """Return data, sizes, steps, learning rate and seeds as a sentence."""
    data, fields = analysis.frames.record.data, _fields(analysis)
    languages = " to ".join(data.get("languages") or ())
    counts = data.get("counts", {})
    pairs = [f"{counts[part]:,} {name}" for part, name in (("train", "training"), ("test", "test")) if counts.get(part)]
    depth = f"{_values(fields['model.encoder_layers'])} + {_values(fields['model.decoder_layers'])} layers"
    batch = fields["train.batch_size"]
    tokens = f"up to {_values(fields['train.batch_tokens'])} tokens"
    size = tokens if batch == [None] else f"{_values(batch)} pairs"
    inner = _values([variant.d_ff for variant in analysis.frames.by_slug.values()])
    heads = _values(fields["model.heads"])
    parts = [
        ", ".join(filter(None, [data.get("dataset"), languages])) + (f", {' and '.join(pairs)} pairs" if pairs else ""),
        f"width {_values(fields['model.d_model'])}, {heads} head{'s' * (heads != '1')}, {depth}, feed-forward "
        f"{inner}, {_parameters(analysis)} parameters",
        f"{_values(_steps(analysis))} steps of {size}",
        f"learning rate {learning_rate(analysis)}, schedule {_values(fields['train.schedule'])}",
        *_initial_weights(analysis),
        _seeds(analysis),
    ]
    return f"Set-up: {'; '.join(parts)}."


def entry_blocks(analysis: Analysis) -> list[Block]:
    """Return the descriptions of the plugin entries in which the variants differ; folded if there are many."""
    entries = analysis.frames.record.entries
    if not entries:
        return []
    described = Definitions(tuple((entry.name, entry.summary.replace("`", "")) for entry in entries))
    return (
        [described]
        if len(entries) <= MOST_ENTRIES
        else [Details(f"Descriptions of {len(entries)} entries", (described,))]
    )


def learning_rate(analysis: Analysis) -> str:
    """Return the learning rate and how it was chosen."""
    rates = _values(_fields(analysis)[LEARNING_RATE])
    tuning = analysis.frames.record.tuning
    if tuning is not None and tuning.variants and LEARNING_RATE in tuning.fields:
        tried = {trial.values[LEARNING_RATE]: None for tuned in tuning.variants.values() for trial in tuned.tried}
        edges = variants_at_the_edge(tuning)
        note = f" and at the edge of this sweep for {edges}" if edges else ""
        sweep = f"{_values(list(tried), len(tried))}{length_of(tuning)}"
        return f"{rates}, tuned for each variant on {tuning.metric} over {sweep}{note}"
    if LEARNING_RATE in analysis.frames.axes:
        return f"{rates}, an axis of the experiment"
    origin = (
        "the default" if rates == _values([TrainConfig.model_fields["lr"].default]) else "set in the experiment file"
    )
    return f"{rates}, {origin}"


def setup_blocks(analysis: Analysis) -> list[Block]:
    """Return the section with the complete configuration; values that differ between variants are all listed."""
    fields = _fields(analysis)
    sections: dict[str, list[str]] = {}
    for path, values in fields.items():
        section, _, name = path.partition(".")
        sections.setdefault(section, []).append(f"{name} {_values(values)}")
    parameters = _parameters(analysis)
    items: list[tuple[str, Text]] = [
        ("seeds", ", ".join(map(str, analysis.frames.seeds))),
        ("steps", _values(_steps(analysis))),
        ("learning rate", learning_rate(analysis)),
        ("parameters", f"{parameters}, match: {analysis.frames.record.match}"),
        *((section, ", ".join(texts)) for section, texts in sections.items()),
    ]
    return [Heading(2, "Set-up", "setup", "Set-up"), Definitions(tuple(items))]


def _fields(analysis: Analysis) -> dict[str, list[Any]]:
    """Return the distinct values of each field of the configuration over all variants, the baseline's first."""
    by_slug = analysis.frames.by_slug
    variants = [by_slug[analysis.frames.baseline], *by_slug.values()]
    fields: dict[str, list[Any]] = {}
    for variant in variants:
        for path, value in _flat(variant.config):
            values = fields.setdefault(path, [])
            if value not in values:
                values.append(value)
    return fields


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _values(values: list[Any], most: int = MOST_VALUES) -> str:
    """Return the distinct values as text: a list, or if there are many a range or their number."""
    distinct = list(dict.fromkeys(_text(value) for value in values))
    if len(distinct) <= most:
        return " / ".join(distinct)
    numbers = [value for value in values if isinstance(value, int | float)]
    if len(numbers) == len(values):
        return f"{_text(min(numbers))} to {_text(max(numbers))}"
    return f"({len(distinct)} values)"


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(_text, value)) or "none"
    if isinstance(value, str) and value.startswith("/"):
        return Path(value).name  # the data hash identifies the content, wherever the file is
    return f"{value:g}" if isinstance(value, float) else label(value)


def _steps(analysis: Analysis) -> list[Any]:
    """Return the number of steps of each run; without finished runs, those of the plan."""
    return analysis.frames.trained_steps or [variant.steps for variant in analysis.frames.by_slug.values()]


def _parameters(analysis: Analysis) -> str:
    variants: list[VariantRecord] = list(analysis.frames.by_slug.values())
    totals = [variant.counts.total for variant in variants]
    return " to ".join(dict.fromkeys(show_count(total) for total in (min(totals), max(totals))))


def _initial_weights(analysis: Analysis) -> list[str]:
    """Return the origin of the initial weights of all variants; empty if no training starts from a run."""
    found = [variant.config.get("init_from") for variant in analysis.frames.by_slug.values()]
    origins = [f"run {init_from['run']}" if init_from else "the seed" for init_from in found]
    return [f"initial weights from {_values(origins)}"] if any(found) else []


def _seeds(analysis: Analysis) -> str:
    count = len(analysis.frames.seeds)
    return f"{count} seed{'s' * (count != 1)}"
