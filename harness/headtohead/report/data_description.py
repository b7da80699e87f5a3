"""The section on data: dataset, split, sizes, decoding and BLEU signatures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headtohead.report.blocks import Block, Definitions, Heading, Span, Text
from headtohead.report.content import ReportContent
from headtohead.storage.metrics import readable


def data_blocks(content: ReportContent) -> list[Block]:
    """Return the section on the baseline's data."""
    items = [*_draws(content), *data_items(content.record.data), *_decodings(content), *_signatures(content)]
    return [Heading(2, "Data", "data", "Data"), Definitions(tuple(items))]


def _draws(content: ReportContent) -> list[tuple[str, Text]]:
    frames = content.analysis.frames
    if not frames.has_draws:
        return []
    text = (
        f"a new draw of the data for each seed; sizes, hash and other numbers are those of seed {frames.seeds[0]}. "
        "Scores are not compared with the bag-of-words upper bound, because each draw has its own"
    )
    return [("draws", text)]


def data_items(data: Mapping[str, Any]) -> list[tuple[str, Text]]:
    """Return the properties of a dataset in a run's record, by name."""
    languages = " to ".join(data.get("languages") or ())
    unknown = (data.get("unk_rate") or {}).get("test") or {}
    tokens = f", {data['tokens']} tokens" if data.get("tokens") else ""
    upper_bound = data.get("bag_of_words_upper_bound")
    items: dict[str, Text | None] = {
        "dataset": ", ".join(filter(None, [data.get("dataset"), languages])),
        "split": _split(data),
        "pairs": _counts(data.get("counts"), "{:,}"),
        "dropped": _counts(data.get("dropped")),
        "vocabulary": _counts(data.get("vocabulary")),
        "unknown words, test": _counts({name: _percent(fraction) for name, fraction in unknown.items()}),
        "text": f"normalise {data['normalise']}{tokens}" if data.get("normalise") else None,
        "longest, tokens": _counts(data.get("longest")),
        "bag-of-words upper bound": None if upper_bound is None else f"{upper_bound:.3f} exact match on the test set",
        "licence": data.get("licence"),
        "citation": data.get("citation"),
        "data hash": Span(data["data_hash"], "code") if data.get("data_hash") else None,
    }
    notes = [("note", str(note)) for note in data.get("notes") or ()]
    return [*((term, text) for term, text in items.items() if text), *notes]


def _split(data: Mapping[str, Any]) -> Text | None:
    name, leak = data.get("split"), data.get("leak")
    if not name or leak is None:
        return name
    if data.get("leaky"):
        return (f"{name} ", Span(f"LEAKY: {_percent(leak)} of the test sources are in training", "alarm"))
    return f"{name}, leak {_percent(leak)}"


def _counts(counts: Mapping[str, Any] | None, form: str = "{}") -> str:
    return ", ".join(f"{name} {form.format(count)}" for name, count in (counts or {}).items())


def _percent(fraction: Any) -> str:
    return f"{100 * float(fraction):.1f} %"


def _decodings(content: ReportContent) -> list[tuple[str, Text]]:
    """Return the distinct decoding settings of the runs."""
    details = content.analysis.frames.details.values()
    settings = {_decoding(run.decoding) for run in details if run.decoding}
    return [("decoding", text) for text in sorted(settings)]


def _decoding(setting: Mapping[str, Any]) -> str:
    text = str(setting["decode"])
    if "size" in setting:
        text += f" of {setting['size']}, length penalty {setting['length_penalty']:g}"
    return f"{text}, at most {setting['max_length']} tokens" if "max_length" in setting else text


def _signatures(content: ReportContent) -> list[tuple[str, Text]]:
    """Return the distinct sacreBLEU signatures of the runs."""
    signatures = {
        (name, str(signature))
        for run in content.analysis.frames.details.values()
        for name, signature in run.signatures.items()
    }
    return [("sacreBLEU", f"{readable(name)}: {text}") for name, text in sorted(signatures)]
