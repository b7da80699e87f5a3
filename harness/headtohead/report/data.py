"""The sections on data: its description, scores without training, and outputs for test examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headtohead.analysis.reference_points import NAMES, ReferencePoints
from headtohead.analysis.scores import same_data_set
from headtohead.config.clauses import of_phrases
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
    """Return a table of the properties of the baseline's data, and of all distinct decodings and sacreBLEU signatures.

    Properties without a value have no row. Decodings and signatures are those of all finished runs.
    """
    frames = report.analysis.frames
    has_encoder = any("encoder" in variant.config.roles for variant in frames.record.variants)
    scoring = set[tuple[str, str]]()
    for results in frames.results.values():
        if results.decoding:
            scoring.add(("decoding", _decoding(results.decoding)))
        for name, signature in results.signatures.items():
            metric = readable(f"test/{name}")
            scoring.add(("sacreBLEU", f"{metric}: {signature}"))
    properties = data_properties(report.record.data, has_encoder=has_encoder)
    rows = []
    for name, value in [*properties.items(), *sorted(scoring)]:
        rows.append({"property": name, "value": value})
    return Section("Data", hint="dataset, split, vocabulary, leaks", frame=table(rows))


def corpus_text(data: Mapping[str, Any]) -> str:
    """Return the dataset and its languages."""
    languages = [language for language in data.get("languages") or () if language != "none"]
    parts = [data.get("dataset"), " to ".join(languages)]
    return ", ".join(dict.fromkeys(part for part in parts if part))


READING = ": source and target as one sequence, loss on the target alone"


def reading_of(data: Mapping[str, Any]) -> str:
    """Return how a decoder-only model reads pairs; empty if the examples are no pairs."""
    return READING if examples_of(data) == "pairs" else ""


def layers_text(model: ModelConfig, reading: str = "") -> str:
    """Return the number of layers, of a decoder-only model followed by ``reading``, how it reads its examples."""
    if model.architecture == "encoder-decoder":
        return f"{model.encoder_layers} encoder + {model.decoder_layers} decoder layers"
    layers = counted(model.decoder_layers, "layer")
    return f"{layers} (decoder-only{reading})"


def data_properties(data: Mapping[str, Any], *, has_encoder: bool) -> dict[str, str]:
    """Return the properties of a dataset by name, as texts in printing order; those without a value are left out.

    Args:
        data: The data record of an experiment or a run, whose fields have the types of `DataRecord`. Fields may be
            missing, for example of an imported checkpoint. No such record raises an error.
        has_encoder: Whether a model has an encoder. Without one, the bag-of-words upper bound is left out, which is
            that of order-invariant encoders.
    """
    examples_name = examples_of(data)
    has_sources = examples_name == "pairs"
    properties: dict[str, object] = {}
    properties["dataset"] = _dataset(data, has_sources)
    properties["split"] = _split(data)
    properties[examples_name] = _counts(data.get("counts"), "{:,}")
    properties["labels"] = _counts(data.get("labels"), "{:,}")
    properties["dropped"] = _dropped(data)
    properties["vocabulary"] = _counts(_of_sides(data.get("vocabulary"), has_sources))
    properties["unknown words, test"] = _unknown_words(data, has_sources)
    if has_sources and data.get("normalise"):
        properties["text"] = f"normalise {data['normalise']}, {data.get('tokens')} tokens"
    properties["longest, tokens"] = _longest(data)
    bound = data.get("bag_of_words_upper_bound")
    if has_sources and has_encoder and bound:
        properties["bag-of-words upper bound"] = f"{bound:.3f} exact match on the test set"
    properties["test loss without a model"] = _counts(data.get("losses_without_model"), "{:.3f}")
    properties["licence"] = data.get("licence")
    properties["citation"] = data.get("citation")
    properties["data hash"] = data.get("data_hash")
    notes = data.get("notes") or ()
    properties["notes"] = " · ".join(map(str, notes))
    return {name: str(value) for name, value in properties.items() if value}


def _dataset(data: Mapping[str, Any], has_sources: bool) -> str:
    """Return the dataset with its languages if examples have sources; empty without a dataset."""
    languages = " to ".join(data.get("languages") or ())
    if has_sources and languages and data.get("dataset"):
        return f"{data['dataset']}, {languages}"
    return str(data.get("dataset") or "")


def _split(data: Mapping[str, Any]) -> str:
    """Return the split, followed by the leaks of the test and the validation set: ``row, LEAKY: 5.0 % of …``.

    Empty without a split; the split alone if the leak of the test set was not measured, and ``row, leak`` with 0 % if
    nothing leaks. The validation set is named only if a part of it leaks and the leak of the test set was measured.
    """
    split = str(data.get("split") or "")
    leak = data.get("leak")
    if not split or leak is None:
        return split
    if leak == 0:
        split += f", leak {_percent(leak)}"
    else:
        label = _leak_label(data.get("leaky"))
        split += f", {label}: {leaked_part(data)}"
    for validation_leak in leaked_validation(data):
        label = _leak_label(validation_leak.is_serious)
        split += f", {label}: {validation_leak.clause}"
    return split


def _leak_label(is_serious: object) -> str:
    """Return the word before a leak, in capitals if it is serious."""
    return "LEAKY" if is_serious else "leak"


def _dropped(data: Mapping[str, Any]) -> str:
    """Return how many examples were dropped for each reason; empty if none was."""
    counts = {}
    for reason, count in (data.get("dropped") or {}).items():
        if count:
            counts[reason.replace("_", " ")] = count
    return _counts(counts)


def _unknown_words(data: Mapping[str, Any], has_sources: bool) -> str:
    """Return the share of unknown words of the test set by side; empty if it was not measured."""
    rates = (data.get("unk_rate") or {}).get("test")
    rates_of_sides = _of_sides(rates, has_sources)
    return _counts({side: _percent(rate) for side, rate in rates_of_sides.items()})


def _longest(data: Mapping[str, Any]) -> str:
    """Return the largest number of tokens by side; empty if it is unknown or 0."""
    longest = data.get("longest") or {}
    return _counts({side: longest[side] for side in longest if longest[side]})


def _of_sides(values: Mapping[str, Any] | None, has_sources: bool) -> dict[str, Any]:
    """Return the values of the sides that the examples have, source and target or target alone; empty for None."""
    sides = ("source", "target") if has_sources else ("target",)
    return {side: value for side, value in (values or {}).items() if side in sides}


def _counts(counts: Mapping[str, Any] | None, form: str = "{}") -> str:
    """Return names with their counts in ``form``, joined by commas; empty without counts or for None."""
    texts = []
    for name, count in (counts or {}).items():
        texts.append(f"{name} {form.format(count)}")
    return ", ".join(texts)


def _percent(fraction: Any) -> str:
    """Return a fraction in percent with one decimal: ``12.5 %`` for 0.125."""
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

HINT = "scores without a model"
NOT_COMPUTED = "Not computed. h2h run with the experiment file computes them; it does not retrain finished runs."
BESIDE_BASELINE = (
    "Scores without a model on the baseline's {sentences:,} test sentences, beside the baseline. "
    "{definitions}"
)
BESIDE_BEST = (
    "Scores without a model on the baseline's {sentences:,} test sentences, beside the variant with the best mean on "
    "its data and size, and the baseline. {definitions}"
)
OTHER_SENTENCES = "On the {sentences:,} test sentences {of_variant}"


def reference_section(report: Report) -> Section | None:
    """Return the scores of translations without training, beside those of the best variant and of the baseline.

    None if no variant is decoded (``evaluate.decode: none``). Without reference points of the baseline, the section
    has no table and names the command that computes them. Of the ranked variants whose test sentences are not the
    baseline's, only the best one has a table, as a part of the section.

    Raises:
        HeadToHeadError: If the file of the reference points is damaged.
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
        best_other = others[0]
        other_points = analysis.reference_points[best_other]
        title = OTHER_SENTENCES.format(
            sentences=other_points.sentences,
            of_variant=of_phrases([report.title(best_other)]),
        )
        other_rows = _points(report, other_points, [best_other])
        parts.append(Section(title, frame=table(other_rows)))
    definitions = [DEFINITIONS[name] for name in points.scores if name in DEFINITIONS]
    template = BESIDE_BASELINE if best == frames.baseline else BESIDE_BEST
    text = template.format(sentences=points.sentences, definitions=" ".join(definitions))
    rows = _points(report, points, [best, frames.baseline])
    return Section("Reference points", text, hint=HINT, frame=table(rows), parts=parts)


def _has_other_points(report: Report, slug: str, points: ReferencePoints) -> bool:
    """Return whether a variant has reference points that are not ``points``, those of the baseline."""
    points_of_variant = report.analysis.reference_points.get(slug)
    return points_of_variant is not None and points_of_variant != points


def _points(report: Report, points: ReferencePoints, slugs: Sequence[str]) -> list[dict[str, str]]:
    """Return a row for each reference point and each variant, highest score first.

    The columns are the metrics in which a model can score. The rows are sorted by the metric in which the study
    compares models with reference points, or by the first column if it is not among them. Unranked variants and
    variants without a score in this metric have no row. Without columns, no variant has a row.

    Args:
        report: The report.
        points: The reference points.
        slugs: Variants with the test sentences of ``points``; a repeated slug has one row.

    Raises:
        HeadToHeadError: If the file of the reference points is damaged.
        KeyError: If a reference point lacks one of these metrics, or the study has no variant of a slug.
    """
    analysis, frames, metrics = report.analysis, report.analysis.frames, points.metrics
    first = next(iter(metrics), "")
    if analysis.reference_metric in metrics:
        first = str(analysis.reference_metric)
    scored_rows: list[tuple[float, dict[str, str]]] = []
    for name, scores in points.scores.items():
        row = {"": NAMES[name]}
        for metric in metrics:
            row[readable(metric)] = show(scores[metric], metric)
        scored_rows.append((scores.get(first, 0.0), row))
    for slug in dict.fromkeys(slugs):
        has_score = first and frames.summary(slug, first).n
        if not has_score or slug in analysis.unranked:
            continue
        row = {"": report.title(slug)}
        for metric in metrics:
            summary = frames.summary(slug, metric)
            row[readable(metric)] = score(summary, metric)
        scored_rows.append((frames.summary(slug, first).mean, row))
    scored_rows.sort(key=lambda scored_row: -scored_row[0])
    return [row for _, row in scored_rows]


LENGTHS = (
    "Mean over seeds by length of the source; the band ranges from the lowest to the highest seed. Grey in every "
    "panel: the baseline, {baseline}."
)


def length_section(report: Report) -> Section:
    """Return the mean scores by length of the source: a row per variant, a column per bucket of lengths.

    Variants without these scores have no row, and a bucket that a variant lacks is an empty cell. Without scores of at
    least two buckets, the section has no table.
    """
    scores = bucket_scores(report.analysis)
    metric = f"test/{bucket_metric(report.analysis)}"
    rows = []
    for slug in report.analysis.order:
        buckets = scores[scores["variant"] == slug]
        if len(buckets) == 0:
            continue
        row = {"variant": report.title(slug)}
        for bucket, mean in zip(buckets["bucket"], buckets["mean"], strict=True):
            row[bucket] = show(mean, metric)
        rows.append(row)
    shown = report.shown(MAX_LINES)
    caption = LENGTHS.format(baseline=report.title(report.analysis.frames.baseline)) + shown
    return Section(
        "By length of the source",
        frame=table(rows),
        hint="scores of short and long sentences",
        figure="lengths",
        caption=caption,
    )


OUTPUTS_OF_ONE = "Test examples{lengths}, with the outputs of the first finished seed {of_variant}."
OUTPUTS_OF_SEVERAL = (
    "Test examples on which the variants differ most{lengths}, with the outputs of the first finished seed of each "
    "variant{limit}."
)
BY_LENGTH = ", one for each of {lengths} from the shortest to the longest"
FIRST_VARIANTS = f" (the first {MAX_VARIANTS} of the design)"


def translation_section(report: Report) -> Section | None:
    """Return the test examples that `sample` chooses, with their outputs: those on which variants differ most.

    None without saved outputs, or if no example is the same for all variants. Of a single variant, there is no column
    of variants. With a length split, each example has another length.

    Raises:
        HeadToHeadError: If saved outputs cannot be read or have changed since they were written.
    """
    outputs = _outputs(report)
    is_by_length = report.record.data.get("split") == "length"
    indices = sample(outputs, is_by_length)
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
        text = OUTPUTS_OF_ONE.format(lengths=lengths, of_variant=of_phrases([report.title(slug)]))
    else:
        limit = FIRST_VARIANTS if len(outputs) == MAX_VARIANTS else ""
        text = OUTPUTS_OF_SEVERAL.format(lengths=lengths, limit=limit)
    return Section("Outputs", text, hint="sentences on which variants differ", frame=table(rows))


def _outputs(report: Report) -> dict[str, list[Translation]]:
    """Return the saved outputs of the first `MAX_VARIANTS` variants that have some, of their first finished seed.

    Left out are variants that equal another one, and those that are not `same_data_set` as the baseline: with another
    dataset, other languages, or another value of the axis ``data`` or ``size``.

    Raises:
        HeadToHeadError: If saved outputs cannot be read or have changed since they were written.
    """
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
            translations = translations_of(frames, slug, seed)
            if translations:
                outputs[slug] = translations
    return outputs


def _output_rows(
    report: Report, outputs: Mapping[str, Sequence[Translation]], index: int
) -> list[dict[str, str]]:
    """Return a row for each distinct output for an example: exact ones first, then those of the most variants.

    Only the first row has source and references. The column of variants is missing if there is only one variant.

    Args:
        report: The report.
        outputs: The outputs of each variant, of the same examples; at least one variant.
        index: Number of the example.

    Raises:
        IndexError: If a variant has no output with this number.
    """
    titles: dict[tuple[bool, str], list[str]] = {}
    for slug, translations in outputs.items():
        translation = translations[index]
        output = (translation.exact, translation.hypothesis)
        titles.setdefault(output, []).append(report.title(slug))

    def rank(output: tuple[bool, str]) -> tuple[bool, int, str]:
        is_exact, text = output
        return not is_exact, -len(titles[output]), text

    example = next(iter(outputs.values()))[index]
    source = f"{example.source}\n{' / '.join(example.references)}"
    rows: list[dict[str, str]] = []
    for is_exact, text in sorted(titles, key=rank):
        row = {
            "source and reference": "" if rows else source,
            "exact": "✓" if is_exact else "✗",
            "output": text or "(empty)",
        }
        names = titles[is_exact, text]
        if len(outputs) > 1:
            is_every = len(names) == len(outputs)
            row["variants"] = "every variant" if is_every else listed(names, most=MAX_NAMED)
        rows.append(row)
    return rows


class _Candidate(NamedTuple):
    """An example that can be shown; the smallest candidates are shown."""

    split: int
    """Negative number of variants in the smaller group, of those with an exact and those with a wrong output."""
    distinct: int
    """Negative number of distinct outputs."""
    example: int
    """Index of the example."""


def sample(by_slug: Mapping[str, Sequence[Translation]], by_length: bool = False) -> list[int]:
    """Return the numbers of at most ``SAMPLES`` test examples on which variants differ most, shortest source first.

    An example comes before others if exact and wrong outputs are more evenly split, then if it has more distinct
    outputs, then if it is earlier. A source is shown once. Examples that are not the same for all variants, or that a
    variant lacks, are left out. Empty without variants.

    Args:
        by_slug: The outputs for the same examples, in the same order, by variant.
        by_length: One example of each of ``SAMPLES`` lengths of the source, from the shortest to the longest.
    """
    by_source = _candidates(by_slug)
    sources = sorted(by_source, key=lambda source: (by_source[source], len(source.split())))
    if by_length:
        sources = _one_of_each_length(sources)
    shown = []
    for source in sources[:SAMPLES]:
        length = len(source.split())
        shown.append((length, by_source[source].example))
    return [index for _, index in sorted(shown)]


def _candidates(by_slug: Mapping[str, Sequence[Translation]]) -> dict[str, _Candidate]:
    """Return the smallest candidate of each source, of the examples that are the same for all variants.

    Beyond the shortest list of outputs, examples are ignored.
    """
    candidates: dict[str, _Candidate] = {}
    for index, translations in enumerate(zip(*by_slug.values(), strict=False)):
        examples = {(row.source, row.references) for row in translations}
        if len(examples) > 1:
            continue
        exact = sum(row.exact for row in translations)
        wrong = len(translations) - exact
        distinct = len({row.hypothesis for row in translations})
        candidate = _Candidate(-min(exact, wrong), -distinct, index)
        source = translations[0].source
        candidates[source] = min(candidate, candidates.get(source, candidate))
    return candidates


def _one_of_each_length(sources: Sequence[str]) -> list[str]:
    """Return the first source of each of ``SAMPLES`` lengths, from the shortest to the longest.

    They are evenly spread by rank among the distinct lengths, not by the number of words. With fewer lengths, there is
    one of each; empty without sources. A length is a number of words.
    """
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
