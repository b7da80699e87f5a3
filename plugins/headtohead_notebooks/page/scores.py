"""Scores of the notebooks, as lines of text: on their own data, and on the same data for all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import SimpleNamespace

from headtohead.analysis.study import Analysis
from headtohead.storage.metrics import counted, readable, show
from headtohead.storage.run_directory import RunDirectory
from headtohead.storage.translations import read_translations
from headtohead_judge.paired_tests import Summary

CHANGED = {"": "as written", "positional=sinusoidal": "with positions by time"}
"""Descriptions of the changed fields of a variant; other fields are shown as they are."""

SAME_DATA_METRICS = ("test/exact_match", "test/token_accuracy")
FUTURE = "future not masked"
"""The pitfall that makes scores with the reference as input meaningless."""
EVALUATION_FIELDS = ("evaluate_every", "valid", "test")
"""Changed fields that do not change the model, only the amount of evaluation."""
MAX_LETTERS = 60
"""Letters shown of a translation."""


def own_data_scores(analysis: Analysis, recipe: str) -> Iterator[str]:
    """Yield the results of a notebook on its own data: loss, correct translations, number of seeds."""
    for slug, name, changed in _variants(analysis):
        if name != recipe:
            continue
        seeds = int((analysis.frames.rows(slug)["state"] == "DONE").sum())
        if not seeds:
            yield "not finished"
            return
        yield from _loss(analysis, slug)
        yield from _translations(analysis, slug)
        changes = [
            change
            for change in changed.split(", ")
            if change.partition("=")[0] not in EVALUATION_FIELDS
        ]
        reduced = f", reduced here to {', '.join(changes)}".replace("=", " ") if changed else ""
        yield f"{counted(seeds, 'seed')}{reduced}"


def same_data_scores(analysis: Analysis, recipe: str) -> Iterator[str]:
    """Yield the results of a notebook's choices on the data that is the same for all."""
    frames = analysis.frames
    variants = [(slug, changed) for slug, name, changed in _variants(analysis) if name == recipe]
    for slug, changed in variants:
        summaries = {metric: frames.summary(slug, metric) for metric in SAME_DATA_METRICS}
        scores = [
            f"{readable(metric)} {_mean(summary, metric)}"
            for metric, summary in summaries.items()
            if summary.n
        ]
        variant = f"{CHANGED.get(changed, changed)}: " if len(variants) > 1 else ""
        has_label = any(pitfall.name == FUTURE for pitfall in frames.by_slug[slug].pitfalls)
        note = "; its decoder input contains the label" if has_label else ""
        yield f"{variant}{', '.join(scores) or 'not finished'}{note}"
    for excluded in frames.record.excluded:
        if str(excluded.axes.get("recipe", "")).partition("(")[0] == recipe:
            yield f"excluded: {excluded.reason}"
            return


def ranked_scores(analysis: Analysis, names: Mapping[str, str]) -> list[SimpleNamespace]:
    """Return name, mean with interval, text and pitfalls of all variants, best first.

    Args:
        analysis: The experiment on the same data.
        names: Display names by recipe.
    """
    scores = []
    for slug, recipe, changed in _variants(analysis):
        name = f"{names.get(recipe, recipe)}{changed and ', '}{changed and CHANGED.get(changed, changed)}"
        summary = analysis.frames.summary(slug, analysis.metric)
        pitfalls = tuple(pitfall.name for pitfall in analysis.frames.by_slug[slug].pitfalls)
        text = _mean(summary, analysis.metric)
        scores.append(SimpleNamespace(name=name, summary=summary, text=text, pitfalls=pitfalls))
    return sorted(scores, key=lambda score: -score.summary.mean if score.summary.n else math.inf)


def _variants(analysis: Analysis) -> list[tuple[str, str, str]]:
    """Return slug, recipe and changed fields of every variant, unchanged recipes first."""
    variants = []
    for slug, variant in analysis.frames.by_slug.items():
        recipe, _, changed = str(variant.axes.get("recipe", "")).partition("(")
        variants.append((slug, recipe, changed.removesuffix(")")))
    return sorted(variants, key=lambda variant: variant[2])


def _loss(analysis: Analysis, slug: str) -> Iterator[str]:
    """Yield the loss beside the loss of guessing."""
    frames = analysis.frames
    summary = frames.summary(slug, analysis.metric)
    record = RunDirectory(frames.folders[str(frames.rows(slug).index[0])]).record
    vocab_size = (record.data.get("vocabulary") or {}).get("target")
    min_vocab_size = record.config.quirks.min_vocab_size
    words = max([int(size) for size in (vocab_size, min_vocab_size) if size], default=0)
    guess = f"; guessing among {words:,} words gives {math.log(words):.2f}" if words else ""
    if summary.n:
        yield f"loss {_mean(summary, analysis.metric)}{guess}"


def _translations(analysis: Analysis, slug: str) -> Iterator[str]:
    """Yield the number of correct and empty translations over all seeds, and an example."""
    frames = analysis.frames
    translations = [
        translation
        for run in frames.rows(slug).index
        for translation in read_translations(frames.folders[str(run)])
    ]
    if not translations:
        yield "no translations: the notebook has no decoding"
        return
    exact = sum(translation.exact for translation in translations)
    nonempty = [translation for translation in translations if translation.hypothesis.strip()]
    num_empty = len(translations) - len(nonempty)
    empty = f"; {num_empty:,} empty" if num_empty else ""
    yield f"{exact:,} of {counted(len(translations), 'translation')} correct{empty}"
    if nonempty:
        yield f"“{_shortened(nonempty[0].source)}” → “{_shortened(nonempty[0].hypothesis)}”"


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_LETTERS else text[: MAX_LETTERS - 1] + "…"


def _mean(summary: Summary, metric: str) -> str:
    mean = show(summary.mean, metric)
    if not math.isfinite(summary.low):
        return mean
    return f"{mean} ({show(summary.low, metric)} to {show(summary.high, metric)})"
