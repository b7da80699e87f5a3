"""The section on data: the dataset, its split, its size, and how translations were scored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headtohead.report.blocks import Block, Definitions, Heading, Span, Text
from headtohead.report.content import ReportContent
from headtohead.storage.metrics import readable


def data_blocks(content: ReportContent) -> list[Block]:
    """Return what the experiment's record holds of its data."""
    items = [*_data_items(content.experiment.get("data") or {}), *_decodings(content), *_signatures(content)]
    return [Heading(2, "Data", "data", "Data"), Definitions(tuple(items))]


def _data_items(data: Mapping[str, Any]) -> list[tuple[str, Text]]:
    languages = " to ".join(data.get("languages") or ())
    unknown = (data.get("unk_rate") or {}).get("test") or {}
    tokens = f", {data['tokens']} tokens" if data.get("tokens") else ""
    ceiling = data.get("bag_of_words_ceiling")
    items: dict[str, Text | None] = {
        "dataset": ", ".join(filter(None, [data.get("dataset"), languages])),
        "split": _split(data),
        "pairs": _counts(data.get("counts"), "{:,}"),
        "dropped": _counts(data.get("dropped")),
        "vocabulary": _counts(data.get("vocabulary")),
        "unknown words, test": _counts({name: _percent(part) for name, part in unknown.items()}),
        "text": f"normalise {data['normalise']}{tokens}" if data.get("normalise") else None,
        "longest, tokens": _counts(data.get("longest")),
        "bag-of-words ceiling": None if ceiling is None else f"{ceiling:.3f} exact match on the test set",
        "licence": data.get("licence"),
        "citation": data.get("citation"),
        "data_hash": Span(data["data_hash"], "code") if data.get("data_hash") else None,
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


def _percent(part: Any) -> str:
    return f"{100 * float(part):.1f} %"


def _decodings(content: ReportContent) -> list[tuple[str, Text]]:
    """Return the decoding settings of the runs, each once."""
    records = content.analysis.frames.records.values()
    settings = {_decoding(record["decoding"]) for record in records if record.get("decoding")}
    return [("decoding", text) for text in sorted(settings)]


def _decoding(setting: Mapping[str, Any]) -> str:
    text = str(setting["decode"])
    if "size" in setting:
        text += f" of {setting['size']}, length penalty {setting['length_penalty']:g}"
    return f"{text}, at most {setting['max_length']} words" if "max_length" in setting else text


def _signatures(content: ReportContent) -> list[tuple[str, Text]]:
    """Return sacreBLEU's signatures of BLEU and chrF, each once."""
    signatures = {
        (name, str(signature))
        for record in content.analysis.frames.records.values()
        for name, signature in (record.get("signatures") or {}).items()
    }
    return [("sacreBLEU", f"{readable(name)}: {text}") for name, text in sorted(signatures)]
