"""The sections on data: its description, scores without training, and outputs for test examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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

MAX_NAMED = 6
"""Maximum number of variants that are named beside an output."""


def data_section(report: Report) -> Section:
    """Return dataset, split, sizes, decoding and BLEU signatures of the baseline's data."""
    frames = report.analysis.frames
    has_encoder = any("encoder" in variant.config.roles for variant in frames.record.variants)
    scoring = set[tuple[str, str]]()
    for run in frames.results.values():
        if run.decoding:
            scoring.add(("decoding", _decoding(run.decoding)))
        for name, signature in run.signatures.items():
            scoring.add(("sacreBLEU", f"{readable(f'test/{name}')}: {signature}"))
    properties = [*data_properties(report.record.data, has_encoder).items(), *sorted(scoring)]
    rows = []
    for name, value in properties:
        rows.append({"property": name, "value": value})
    return Section("Data", frame=table(rows))


def corpus_text(data: Mapping[str, Any]) -> str:
    """Return the dataset and its languages."""
    languages = [language for language in data.get("languages") or () if language != "none"]
    parts = [data.get("dataset"), " to ".join(languages)]
    return ", ".join(dict.fromkeys(part for part in parts if part))


READING = ": source and target as one sequence, loss on the target alone"
"""How a decoder-only model reads pairs."""


def layers_text(model: ModelConfig, data: Mapping[str, Any]) -> str:
    """Return the number of layers, and how a decoder-only model reads pairs."""
    if model.architecture == "encoder-decoder":
        return f"{model.encoder_layers} + {model.decoder_layers} layers"
    layers = counted(model.decoder_layers, "layer")
    if examples_of(data) == "pairs":
        return f"{layers} (decoder-only{READING})"
    return f"{layers} (decoder-only)"


def data_properties(data: Mapping[str, Any], has_encoder: bool) -> dict[str, str]:
    """Return the properties of a dataset in a run's record, by name; those of sources only if there are any.

    The bag-of-words upper bound is that of order-invariant encoders.
    """
    examples = examples_of(data)
    has_sources = examples == "pairs"
    properties = {
        "dataset": _dataset(data, has_sources),
        "split": _split(data),
        examples: _counts(data.get("counts"), "{:,}"),
        "labels": _counts(data.get("labels"), "{:,}"),
        "dropped": _dropped(data),
        "vocabulary": _counts(_of_sides(data.get("vocabulary"), has_sources)),
        "unknown words, test": _unknown_words(data, has_sources),
        "text": "",
        "longest, tokens": _longest(data),
        "bag-of-words upper bound": "",
        "test loss without a model": _counts(data.get("losses_without_model"), "{:.3f}"),
        "licence": data.get("licence"),
        "citation": data.get("citation"),
        "data hash": data.get("data_hash"),
        "notes": " · ".join(map(str, data.get("notes") or ())),
    }
    if has_sources and data.get("normalise"):
        properties["text"] = f"normalise {data['normalise']}, {data.get('tokens')} tokens"
    bound = data.get("bag_of_words_upper_bound")
    if has_sources and has_encoder and bound:
        properties["bag-of-words upper bound"] = f"{bound:.3f} exact match on the test set"
    return {name: str(value) for name, value in properties.items() if value}


def _dataset(data: Mapping[str, Any], has_sources: bool) -> str:
    """Return the dataset with its languages if examples have sources; empty without a dataset."""
    languages = " to ".join(data.get("languages") or ())
    if has_sources and languages and data.get("dataset"):
        return f"{data['dataset']}, {languages}"
    return str(data.get("dataset") or "")


def _split(data: Mapping[str, Any]) -> str:
    """Return the split with the leaks that were measured."""
    split = str(data.get("split") or "")
    leak = data.get("leak")
    if not split or leak is None:
        return split
    if leak == 0:
        split += f", leak {_percent(leak)}"
    else:
        split += f", {_leak_label(data.get('leaky'))}: {leaked_part(data)}"
    for validation_leak in leaked_validation(data):
        split += f", {_leak_label(validation_leak.is_serious)}: {validation_leak.clause}"
    return split


def _leak_label(is_serious: object) -> str:
    return "LEAKY" if is_serious else "leak"


def _dropped(data: Mapping[str, Any]) -> str:
    """Return how many examples were dropped for each reason; empty if none was."""
    dropped = data.get("dropped") or {}
    return _counts({name.replace("_", " "): dropped[name] for name in dropped if dropped[name]})


def _unknown_words(data: Mapping[str, Any], has_sources: bool) -> str:
    """Return the share of unknown words of the test set by side; empty if it was not measured."""
    rates = (data.get("unk_rate") or {}).get("test")
    percentages = {side: _percent(rate) for side, rate in _of_sides(rates, has_sources).items()}
    return _counts(percentages)


def _longest(data: Mapping[str, Any]) -> str:
    """Return the largest number of tokens by side; empty if it is unknown or 0."""
    longest = data.get("longest") or {}
    return _counts({side: longest[side] for side in longest if longest[side]})


def _of_sides(values: Mapping[str, Any] | None, has_sources: bool) -> dict[str, Any]:
    """Return the values of the sides that the examples have."""
    sides = ("source", "target") if has_sources else ("target",)
    return {side: value for side, value in (values or {}).items() if side in sides}


def _counts(counts: Mapping[str, Any] | None, form: str = "{}") -> str:
    """Return names with their counts in ``form``, joined by commas; empty without counts."""
    return ", ".join(f"{name} {form.format(count)}" for name, count in (counts or {}).items())


def _percent(fraction: Any) -> str:
    return f"{100 * float(fraction):.1f} %"


def _decoding(setting: Mapping[str, Any]) -> str:
    """Return the method of decoding with its maximum number of tokens, if it has one."""
    text = str(setting["decode"])
    if "max_length" in setting:
        text += f", at most {setting['max_length']} tokens"
    return text


DEFINITIONS = {
    "vocabulary_bound": "Vocabulary upper bound: the reference with unknown words replaced or dropped.",
    "nearest_neighbour": "Nearest neighbour: the target of the training sentence with the most similar source (cosine "
    "of TF-IDF vectors).",
    "majority": "Most frequent target: that of the training data, for every sentence.",
}
"""Definitions of the reference points."""

NOT_COMPUTED = "Not computed. h2h run with the experiment file computes them; it does not retrain finished runs."
BESIDE_BASELINE = (
    "Scores without a model on the baseline's {sentences:,} test sentences, beside the baseline. "
    "{definitions}"
)
BESIDE_BEST = (
    "Scores without a model on the baseline's {sentences:,} test sentences, beside the variant with the best mean on "
    "its data and size, and the baseline. {definitions}"
)
OTHER_SENTENCES = "On the {sentences:,} test sentences of {variant}"


def reference_section(report: Report) -> Section | None:
    """Return the scores without training on the test sets of the variants, or None if nothing is translated.

    Without reference points of the baseline, the section says how to compute them. Of the variants with other test
    sentences, only the best ranked one has a table.
    """
    analysis, frames = report.analysis, report.analysis.frames
    points = analysis.reference_points.get(frames.baseline)
    if all(variant.config.evaluate.decode == "none" for variant in frames.record.variants):
        return None
    if points is None:
        return Section("Reference points", NOT_COMPUTED)
    others = [slug for slug in analysis.ranked if _has_other_points(report, slug, points)]
    best = frames.baseline
    for slug in analysis.ranked:
        if slug not in others and same_data_set(frames, slug, frames.baseline):
            best = slug
            break
    parts = []
    if others:
        other_points = analysis.reference_points[others[0]]
        title = OTHER_SENTENCES.format(
            sentences=other_points.sentences, variant=report.title(others[0])
        )
        parts.append(Section(title, frame=table(_points(report, other_points, others[:1]))))
    definitions = [DEFINITIONS[name] for name in points.scores if name in DEFINITIONS]
    template = BESIDE_BASELINE if best == frames.baseline else BESIDE_BEST
    return Section(
        "Reference points",
        template.format(sentences=points.sentences, definitions=" ".join(definitions)),
        frame=table(_points(report, points, [best, frames.baseline])),
        parts=parts,
    )


def _has_other_points(report: Report, slug: str, points: ReferencePoints) -> bool:
    """Return whether a variant has reference points that are not ``points``, those of the baseline."""
    own = report.analysis.reference_points.get(slug)
    return own is not None and own != points


def _points(report: Report, points: ReferencePoints, slugs: Sequence[str]) -> list[dict[str, str]]:
    """Return the scores of reference points and of variants on the same data, highest first.

    Metrics in which no model can score have no column.
    """
    analysis, frames, metrics = report.analysis, report.analysis.frames, points.metrics
    first = next(iter(metrics), "")
    if analysis.reference_metric in metrics:
        first = str(analysis.reference_metric)
    rows: list[tuple[float, dict[str, str]]] = []
    for key, scores in points.scores.items():
        row = {"": NAMES[key]}
        for metric in metrics:
            row[readable(metric)] = show(scores[metric], metric)
        rows.append((scores.get(first, 0.0), row))
    for slug in dict.fromkeys(slugs):
        if first and frames.summary(slug, first).n and slug not in analysis.unranked:
            row = {"": report.title(slug)}
            for metric in metrics:
                row[readable(metric)] = score(frames.summary(slug, metric), metric)
            rows.append((frames.summary(slug, first).mean, row))
    rows.sort(key=lambda entry: -entry[0])
    return [row for _, row in rows]


def length_section(report: Report) -> Section:
    """Return the scores by length of the source.

    Without scores by length, it has no table; variants without these scores have no row.
    """
    scores = bucket_scores(report.analysis)
    metric = f"test/{bucket_metric(report.analysis)}"
    rows = []
    for slug in report.analysis.frames.by_slug:
        buckets = scores[scores["variant"] == slug]
        if len(buckets):
            row = {"variant": report.title(slug)}
            for bucket, mean in zip(buckets["bucket"], buckets["mean"], strict=True):
                row[bucket] = show(mean, metric)
            rows.append(row)
    return Section(
        "By length of the source",
        f"Mean over seeds; the band ranges from the lowest to the highest seed.{report.shown(MAX_LINES)}",
        frame=table(rows),
        figure="lengths",
    )


OUTPUTS_OF_ONE = "Test examples{lengths}, with the outputs of the first finished seed of {variant}."
OUTPUTS_OF_SEVERAL = (
    "Test examples on which the variants differ most{lengths}, with the outputs of the first finished seed of each "
    "variant{limit}."
)
BY_LENGTH = ", one for each of {lengths} from the shortest to the longest"
FIRST_VARIANTS = f" (the first {MAX_VARIANTS} of the design)"


def translation_section(report: Report) -> Section | None:
    """Return the test examples on which the variants differ most, shortest first; None without saved outputs.

    Of a single variant, there is no column of variants. Examples of a length split are one for each length.
    """
    outputs = _outputs(report)
    is_by_length = report.record.data.get("split") == "length"
    indices = sample(outputs, is_by_length) if outputs else []
    if not indices:
        return None
    rows = []
    for index in indices:
        rows += _output_rows(report, outputs, index)
    lengths = ""
    if is_by_length:
        lengths = BY_LENGTH.format(lengths=counted(len(indices), "length"))
    if len(outputs) == 1:
        (slug,) = outputs
        text = OUTPUTS_OF_ONE.format(lengths=lengths, variant=report.title(slug))
    else:
        limit = FIRST_VARIANTS if len(outputs) == MAX_VARIANTS else ""
        text = OUTPUTS_OF_SEVERAL.format(lengths=lengths, limit=limit)
    return Section("Outputs", text, frame=table(rows))


def _outputs(report: Report) -> dict[str, list[Translation]]:
    """Return the saved outputs of the first variants with the baseline's data, of their first finished seed."""
    analysis, frames = report.analysis, report.analysis.frames
    outputs: dict[str, list[Translation]] = {}
    for slug in frames.by_slug:
        if len(outputs) == MAX_VARIANTS:
            break
        if not same_data_set(frames, slug, frames.baseline):
            continue
        run = shown_run(analysis, slug)
        if run is not None:
            _, seed = run
            rows = translations_of(frames, slug, seed)
            if rows:
                outputs[slug] = rows
    return outputs


def _output_rows(
    report: Report, outputs: Mapping[str, Sequence[Translation]], index: int
) -> list[dict[str, str]]:
    """Return a row for each distinct output for an example: exact ones first, then the most frequent.

    The column of variants is missing if there is only one.

    Args:
        report: The report.
        outputs: The outputs of each variant, of the same examples; at least one variant.
        index: Number of the example.
    """
    titles: dict[tuple[bool, str], list[str]] = {}
    for slug, rows in outputs.items():
        output = rows[index]
        titles.setdefault((output.exact, output.hypothesis), []).append(report.title(slug))

    def rank(output: tuple[bool, str]) -> tuple[bool, int, str]:
        is_exact, text = output
        return not is_exact, -len(titles[output]), text

    example = next(iter(outputs.values()))[index]
    source = f"{example.source}\n{' / '.join(example.references)}"
    cells = list[dict[str, str]]()
    for is_exact, text in sorted(titles, key=rank):
        row = {
            "source and reference": "" if cells else source,
            "exact": "✓" if is_exact else "✗",
            "output": text or "(empty)",
        }
        names = titles[is_exact, text]
        if len(outputs) > 1:
            is_every = len(names) == len(outputs)
            row["variants"] = "every variant" if is_every else listed(names, most=MAX_NAMED)
        cells.append(row)
    return cells


class _Candidate(NamedTuple):
    """An example that can be shown; the smallest candidates are shown."""

    split: int
    """Negative number of variants in the smaller group, of those with an exact and those with a wrong output."""
    distinct: int
    """Negative number of distinct outputs."""
    example: int
    """Index of the example."""


def sample(by_slug: Mapping[str, Sequence[Translation]], by_length: bool = False) -> list[int]:
    """Return the test examples for which exact and wrong outputs are most evenly split, sorted by length.

    Ties go to the example with more distinct outputs, then to the earlier example. Sources are not repeated, and
    examples that are not the same for all variants are left out.

    Args:
        by_slug: The outputs for the same examples by variant.
        by_length: One example of each of ``SAMPLES`` lengths of the source, from the shortest to the longest.
    """
    by_source = _candidates(by_slug)
    sources = sorted(by_source, key=lambda source: (by_source[source], len(source.split())))
    if by_length:
        sources = _one_of_each_length(sources)
    shown = [(len(source.split()), by_source[source].example) for source in sources[:SAMPLES]]
    return [index for _, index in sorted(shown)]


def _candidates(by_slug: Mapping[str, Sequence[Translation]]) -> dict[str, _Candidate]:
    """Return the best candidate of each source, of the examples that are the same for all variants."""
    candidates: dict[str, _Candidate] = {}
    for index, rows in enumerate(zip(*by_slug.values(), strict=False)):
        if len({(row.source, row.references) for row in rows}) > 1:
            continue
        exact = sum(row.exact for row in rows)
        distinct = len({row.hypothesis for row in rows})
        candidate = _Candidate(-min(exact, len(rows) - exact), -distinct, index)
        source = rows[0].source
        candidates[source] = min(candidate, candidates.get(source, candidate))
    return candidates


def _one_of_each_length(sources: Sequence[str]) -> list[str]:
    """Return the first source of each of ``SAMPLES`` lengths, evenly spread from the shortest to the longest."""
    first_of: dict[int, str] = {}
    for source in sources:
        first_of.setdefault(len(source.split()), source)
    lengths = sorted(first_of)
    number = min(SAMPLES, len(lengths))
    shown = []
    for position in range(number):
        index = position * (len(lengths) - 1) // max(number - 1, 1)
        shown.append(first_of[lengths[index]])
    return shown
