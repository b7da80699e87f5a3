"""Scores of the notebooks, as lines of text: on their own data, and on the same data for all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import SimpleNamespace

from headtohead.analysis.study import Analysis
from headtohead.storage.metrics import counted, readable, show
from headtohead.storage.run_directory import RunDirectory
from headtohead.storage.translations import Translation, read_translations
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
        num_seeds = counted(seeds, "seed")
        if not changed:
            yield num_seeds
            continue
        reductions = []
        for change in changed.split(", "):
            field = change.partition("=")[0]
            if field not in EVALUATION_FIELDS:
                reductions.append(change.replace("=", " "))
        yield f"{num_seeds}, reduced here to {', '.join(reductions)}"


def same_data_scores(analysis: Analysis, recipe: str) -> Iterator[str]:
    """Yield the results of a notebook's choices on the data that is the same for all."""
    frames = analysis.frames
    variants = [(slug, changed) for slug, name, changed in _variants(analysis) if name == recipe]
    for slug, changed in variants:
        scores = []
        for metric in SAME_DATA_METRICS:
            summary = frames.summary(slug, metric)
            if summary.n:
                scores.append(f"{readable(metric)} {_mean(summary, metric)}")
        line = ", ".join(scores) or "not finished"
        if len(variants) > 1:
            description = CHANGED.get(changed, changed)
            line = f"{description}: {line}"
        pitfalls = [pitfall.name for pitfall in frames.by_slug[slug].pitfalls]
        if FUTURE in pitfalls:
            line = f"{line}; its decoder input contains the label"
        yield line
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
        name = names.get(recipe, recipe)
        if changed:
            description = CHANGED.get(changed, changed)
            name = f"{name}, {description}"
        summary = analysis.frames.summary(slug, analysis.metric)
        pitfalls = tuple(pitfall.name for pitfall in analysis.frames.by_slug[slug].pitfalls)
        text = _mean(summary, analysis.metric)
        scores.append(SimpleNamespace(name=name, summary=summary, text=text, pitfalls=pitfalls))
    return sorted(scores, key=_best_first)


def _best_first(score: SimpleNamespace) -> float:
    """Return the sort key of a score: the best mean first, scores without a run last."""
    if not score.summary.n:
        return math.inf
    mean: float = score.summary.mean
    return -mean


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
    if not summary.n:
        return
    loss = f"loss {_mean(summary, analysis.metric)}"
    first_run = str(frames.rows(slug).index[0])
    record = RunDirectory(frames.folders[first_run]).record
    vocabulary = record.data.get("vocabulary") or {}
    vocab_size = int(vocabulary.get("target") or 0)
    min_vocab_size = record.config.model.min_vocab_size or 0
    words = max(vocab_size, min_vocab_size)
    if not words:
        yield loss
        return
    yield f"{loss}; guessing among {words:,} words gives {math.log(words):.2f}"


def _translations(analysis: Analysis, slug: str) -> Iterator[str]:
    """Yield the number of correct and empty translations over all seeds, and an example."""
    frames = analysis.frames
    translations: list[Translation] = []
    for run in frames.rows(slug).index:
        folder = frames.folders[str(run)]
        translations.extend(read_translations(folder))
    if not translations:
        yield "no translations: the notebook has no decoding"
        return
    exact = sum(translation.exact for translation in translations)
    line = f"{exact:,} of {counted(len(translations), 'translation')} correct"
    nonempty = [translation for translation in translations if translation.hypothesis.strip()]
    num_empty = len(translations) - len(nonempty)
    if num_empty:
        line = f"{line}; {num_empty:,} empty"
    yield line
    if nonempty:
        source = _shortened(nonempty[0].source)
        hypothesis = _shortened(nonempty[0].hypothesis)
        yield f"“{source}” → “{hypothesis}”"


def _shortened(text: str) -> str:
    """Return a text with at most `MAX_LETTERS` letters."""
    if len(text) <= MAX_LETTERS:
        return text
    return text[: MAX_LETTERS - 1] + "…"


def _mean(summary: Summary, metric: str) -> str:
    """Return a mean with its interval, if there is one."""
    mean = show(summary.mean, metric)
    if not math.isfinite(summary.low):
        return mean
    low = show(summary.low, metric)
    high = show(summary.high, metric)
    return f"{mean} ({low} to {high})"
