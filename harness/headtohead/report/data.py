"""The sections on data: its description, scores without training, and outputs for test examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headtohead.analysis.reference_points import NAMES, ReferencePoints
from headtohead.analysis.scores import same_data_set
from headtohead.config.labels import listed
from headtohead.report.attention import MAX_VARIANTS, shown_run
from headtohead.report.content import Report
from headtohead.report.figures.lines import MAX_LINES, bucket_metric, bucket_scores
from headtohead.report.section import Section, score, table
from headtohead.schema.run_config import ModelConfig
from headtohead.storage.experiment import examples_of, leaked_part, leaked_validation
from headtohead.storage.metrics import counted, readable, show
from headtohead.storage.translations import Translation, translations_of

SAMPLES = 8
"""Number of test examples with shown outputs."""


def data_section(report: Report) -> Section:
    """Return dataset, split, sizes, decoding and BLEU signatures of the baseline's data."""
    frames = report.analysis.frames
    has_encoder = any("encoder" in variant.config.roles for variant in frames.record.variants)
    rows = list(data_properties(report.record.data, has_encoder).items())
    runs = frames.results.values()
    found = {("decoding", _decoding(run.decoding)) for run in runs if run.decoding}
    found |= {
        ("sacreBLEU", f"{readable(f'test/{name}')}: {text}")
        for run in runs
        for name, text in run.signatures.items()
    }
    return Section(
        "Data",
        frame=table({"property": name, "value": value} for name, value in rows + sorted(found)),
    )


def corpus_text(data: Mapping[str, Any]) -> str:
    """Return the dataset and its languages."""
    languages = [language for language in data.get("languages") or () if language != "none"]
    return ", ".join(dict.fromkeys(filter(None, [data.get("dataset"), " to ".join(languages)])))


READING = ": source and target as one sequence, loss on the target alone"
"""How a decoder-only model reads pairs."""


def layers_text(model: ModelConfig, data: Mapping[str, Any]) -> str:
    """Return the number of layers, and how a decoder-only model reads pairs."""
    if model.architecture == "encoder-decoder":
        return f"{model.encoder_layers} + {model.decoder_layers} layers"
    reading = READING * (examples_of(data) == "pairs")
    return f"{counted(model.decoder_layers, 'layer')} (decoder-only{reading})"


def data_properties(data: Mapping[str, Any], has_encoder: bool) -> dict[str, str]:
    """Return the properties of a dataset in a run's record, by name; those of sources only if there are any.

    The bag-of-words upper bound is that of order-invariant encoders.
    """
    examples = examples_of(data)
    has_sources = examples == "pairs"
    sides = {"source", "target"} if has_sources else {"target"}
    unknown = (data.get("unk_rate") or {}).get("test") or {}
    bound, leak = data.get("bag_of_words_upper_bound"), data.get("leak")
    split = data.get("split") or ""
    if split and leak is not None:
        label = "LEAKY" if data.get("leaky") else "leak"
        split += f", {label}: {leaked_part(data)}" if leak else f", leak {_percent(leak)}"
        for validation_leak in leaked_validation(data):
            label = "LEAKY" if validation_leak.is_serious else "leak"
            split += f", {label}: {validation_leak.clause}"
    properties = {
        "dataset": ", ".join(
            filter(
                None, [data.get("dataset"), " to ".join(data.get("languages") or ()) * has_sources]
            )
        ),
        "split": split,
        examples: _counts(data.get("counts"), "{:,}"),
        "labels": _counts(data.get("labels"), "{:,}"),
        "dropped": _counts(
            {
                name.replace("_", " "): count
                for name, count in (data.get("dropped") or {}).items()
                if count
            }
        ),
        "vocabulary": _counts(
            {side: size for side, size in (data.get("vocabulary") or {}).items() if side in sides}
        ),
        "unknown words, test": _counts(
            {name: _percent(unknown[name]) for name in unknown if name in sides}
        ),
        "text": f"normalise {data['normalise']}, {data.get('tokens')} tokens"
        if has_sources and data.get("normalise")
        else "",
        "longest, tokens": _counts(
            {side: most for side, most in (data.get("longest") or {}).items() if most}
        ),
        "bag-of-words upper bound": f"{bound:.3f} exact match on the test set"
        if bound and has_encoder and has_sources
        else "",
        "test loss without a model": ", ".join(
            f"{name} {loss:.3f}" for name, loss in (data.get("losses_without_model") or {}).items()
        ),
        "licence": data.get("licence"),
        "citation": data.get("citation"),
        "data hash": data.get("data_hash"),
        "notes": " · ".join(map(str, data.get("notes") or ())),
    }
    return {name: str(value) for name, value in properties.items() if value}


DEFINITIONS = {
    "vocabulary_bound": "Vocabulary upper bound: the reference with unknown words replaced or dropped.",
    "nearest_neighbour": "Nearest neighbour: the target of the training sentence with the most similar source (cosine "
    "of TF-IDF vectors).",
    "majority": "Most frequent target: that of the training data, for every sentence.",
}
"""Definitions of the reference points."""


def reference_section(report: Report) -> Section | None:
    """Return the scores without training on the test sets of the variants, or None if nothing is translated."""
    analysis, frames = report.analysis, report.analysis.frames
    points = analysis.reference_points.get(frames.baseline)
    if all(variant.config.evaluate.decode == "none" for variant in frames.record.variants):
        return None
    if points is None:
        return Section(
            "Reference points",
            "Not computed. h2h run with the experiment file computes them; it does not retrain finished runs.",
        )
    others = [
        slug
        for slug in analysis.ranked
        if analysis.reference_points.get(slug) not in (points, None)
    ]
    alike = (slug for slug in analysis.ranked if slug not in others)
    best = [slug for slug in alike if same_data_set(frames, slug, frames.baseline)][:1]
    leader = "the variant with the best mean on its data and size, and " * (
        best != [frames.baseline]
    )
    parts = []
    if others and (own := analysis.reference_points.get(others[0])):
        title = f"On the {own.sentences:,} test sentences of {report.title(others[0])}"
        parts.append(Section(title, frame=table(_points(report, own, others[:1]))))
    return Section(
        "Reference points",
        f"Scores without a model on the baseline's {points.sentences:,} test sentences, beside {leader}the baseline. "
        f"{' '.join(DEFINITIONS[name] for name in points.scores if name in DEFINITIONS)}",
        frame=table(_points(report, points, [*best, frames.baseline])),
        parts=parts,
    )


def length_section(report: Report) -> Section:
    """Return the scores by length of the source."""
    scores, metric = bucket_scores(report.analysis), f"test/{bucket_metric(report.analysis)}"
    rows = [
        {"variant": report.title(slug)}
        | {
            bucket: show(mean, metric)
            for bucket, mean in zip(own["bucket"], own["mean"], strict=True)
        }
        for slug in report.analysis.frames.by_slug
        if len(own := scores[scores["variant"] == slug])
    ]
    return Section(
        "By length of the source",
        f"Mean over seeds; the band ranges from the lowest to the highest seed.{report.shown(MAX_LINES)}",
        frame=table(rows),
        figure="lengths",
    )


def translation_section(report: Report) -> Section | None:
    """Return the test examples on which the variants differ most, shortest first; None without saved outputs."""
    analysis, by_slug = report.analysis, dict[str, list[Translation]]()
    for slug in analysis.frames.by_slug:
        has_data = same_data_set(analysis.frames, slug, analysis.frames.baseline)
        run = shown_run(analysis, slug) if has_data else None
        if run is not None and len(by_slug) < MAX_VARIANTS:
            rows = translations_of(analysis.frames, slug, run[1])
            by_slug |= {slug: rows} if rows else {}
    is_by_length = report.record.data.get("split") == "length"
    if not by_slug or not (indices := sample(by_slug, is_by_length)):
        return None
    is_single, cells = len(by_slug) == 1, list[dict[str, str]]()
    for index in indices:
        groups: dict[tuple[bool, str], list[str]] = {}
        for slug, rows in by_slug.items():
            groups.setdefault((not rows[index].exact, rows[index].hypothesis), []).append(
                report.title(slug)
            )
        first = next(iter(by_slug.values()))[index]
        source = f"{first.source}\n{' / '.join(first.references)}"
        # Exact matches first, then the most frequent translation.
        for (wrong, text), titles in sorted(
            groups.items(), key=lambda item: (item[0][0], -len(item[1]), item[0][1])
        ):
            named = "every variant" if len(titles) == len(by_slug) else listed(titles, most=6)
            row = {"source and reference": source, "exact": "✗" if wrong else "✓"}
            cells.append(
                row | {"output": text or "(empty)"} | ({} if is_single else {"variants": named})
            )
            source = ""
    limited = f" (the first {MAX_VARIANTS} of the design)" * (len(by_slug) == MAX_VARIANTS)
    chosen = " on which the variants differ most" * (not is_single)
    of = report.title(next(iter(by_slug))) if is_single else "each variant"
    lengths = (
        f", one for each of {counted(len(indices), 'length')} from the shortest to the longest"
        * is_by_length
    )
    return Section(
        "Outputs",
        f"Test examples{chosen}{lengths}, with the outputs of the first finished seed of {of}{limited}.",
        frame=table(cells),
    )


def sample(by_slug: Mapping[str, Sequence[Translation]], by_length: bool = False) -> list[int]:
    """Return the test examples for which exact and wrong outputs are most evenly split, sorted by length.

    Ties go to the example with more distinct outputs, then to the earlier example. Sources are not repeated, and
    examples that are not the same for all variants are left out.

    Args:
        by_slug: The outputs for the same examples by variant.
        by_length: One example of each of ``SAMPLES`` lengths of the source, from the shortest to the longest.
    """
    size, keys = len(by_slug), dict[str, tuple[int, int, int]]()
    for index, rows in enumerate(zip(*by_slug.values(), strict=False)):
        exact = sum(row.exact for row in rows)
        key = (-min(exact, size - exact), -len({row.hypothesis for row in rows}), index)
        if len({(row.source, row.references) for row in rows}) == 1:
            keys[rows[0].source] = min(key, keys.get(rows[0].source, key))
    ranked = sorted((key, len(source.split())) for source, key in keys.items())
    if by_length:
        first = {length: (key, length) for key, length in reversed(ranked)}
        lengths = sorted(first)
        number = min(SAMPLES, len(lengths))
        ranked = [
            first[lengths[index * (len(lengths) - 1) // max(number - 1, 1)]]
            for index in range(number)
        ]
    return [
        index for _, index in sorted((length, index) for (_, _, index), length in ranked[:SAMPLES])
    ]


def _points(report: Report, points: ReferencePoints, slugs: Sequence[str]) -> list[dict[str, str]]:
    """Return the scores of reference points and of variants on the same data, highest first.

    Metrics in which no model can score have no column.
    """
    analysis, frames, metrics = report.analysis, report.analysis.frames, points.metrics
    first = (
        analysis.reference_metric
        if analysis.reference_metric in metrics
        else next(iter(metrics), "")
    )
    rows = [
        (
            scores.get(first, 0.0),
            {"": NAMES[key], **{readable(name): show(scores[name], name) for name in metrics}},
        )
        for key, scores in points.scores.items()
    ]
    for slug in dict.fromkeys(slugs):
        if first and frames.summary(slug, first).n and slug not in analysis.unranked:
            cells = {readable(name): score(frames.summary(slug, name), name) for name in metrics}
            rows.append((frames.summary(slug, first).mean, {"": report.title(slug), **cells}))
    return [row for _, row in sorted(rows, key=lambda row: -row[0])]


def _decoding(setting: Mapping[str, Any]) -> str:
    text = str(setting["decode"])
    return f"{text}, at most {setting['max_length']} tokens" if "max_length" in setting else text


def _counts(counts: Mapping[str, Any] | None, form: str = "{}") -> str:
    return ", ".join(f"{name} {form.format(count)}" for name, count in (counts or {}).items())


def _percent(fraction: Any) -> str:
    return f"{100 * float(fraction):.1f} %"
