"""What the notebooks scored, in lines for their rows: on their own data, and on the same data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headtohead.analysis.study import Analysis
from headtohead.statistics.paired_tests import Summary
from headtohead.storage.metrics import readable, show
from headtohead.storage.records import RunRecord, VariantRecord
from headtohead.storage.run_directory import RunDirectory
from headtohead.storage.translations import read_translations
from headtohead.tools.notebooks.choices import word
from headtohead.tools.pitfalls.fact import counted

EXACT = "test/exact_match"
FUTURE = "future not masked"
"""The pitfall after which a score on given translations says nothing."""
ASIDE = ("evaluate_every", "valid", "test")
"""Changes that make no other model: they only say how much is evaluated."""
LONGEST = 60
"""Letters that are shown of a translation."""


@dataclass(frozen=True)
class Score:
    """A variant's mean with its interval, for a small picture beside others.

    Attributes:
        name: What the variant is, in words.
        summary: Of its seeds.
        metric: What was scored.
        pitfalls: Names of its choices that are pitfalls.
    """

    name: str
    summary: Summary
    metric: str
    pitfalls: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The mean with its interval."""
        return _mean(self.summary, self.metric)


def recipe_variants(analysis: Analysis, recipe: str) -> list[tuple[str, str]]:
    """Return slug and what was changed, of the variants that a recipe lies beneath."""
    found = []
    for slug, variant in analysis.frames.by_slug.items():
        name, _, changed = str(variant.axes.get("recipe", "")).partition("(")
        if name == recipe:
            found.append((slug, changed.rstrip(")")))
    return sorted(found, key=lambda one: one[1])


def refusal(analysis: Analysis, recipe: str) -> str | None:
    """Return why a recipe has no variant, where the experiment says so."""
    for excluded in analysis.frames.record.excluded:
        if str(excluded.axes.get("recipe", "")).partition("(")[0] == recipe:
            return excluded.reason
    return None


def as_printed(analysis: Analysis, recipe: str) -> Iterator[str]:
    """Yield what a notebook scored on its own data."""
    for slug, changed in recipe_variants(analysis, recipe):
        frames = analysis.frames
        done = frames.rows(slug)
        seeds = int((done["state"] == "DONE").sum())
        if not seeds:
            yield "not finished"
            return
        yield from _loss(analysis, slug)
        yield from _translations(analysis, slug)
        sizes = [one for one in changed.split(", ") if one.partition("=")[0] not in ASIDE]
        cut = f", cut down here to {', '.join(sizes)}".replace("=", " ") if changed else ""
        yield f"{seeds} seed{'s' * (seeds != 1)}{cut}"


def same_data(analysis: Analysis, names: Mapping[str, str]) -> list[Score]:
    """Return the scores of all variants, best first, under the names of their recipes."""
    scores = []
    for slug, variant in analysis.frames.by_slug.items():
        recipe, _, changed = str(variant.axes.get("recipe", "")).partition("(")
        name = names.get(recipe, recipe)
        if changed:
            name += f", {word('changed', changed.rstrip(')'))}"
        summary = analysis.frames.summary(slug, analysis.metric)
        pitfalls = tuple(pitfall.name for pitfall in variant.pitfalls)
        scores.append(Score(name, summary, analysis.metric, pitfalls))
    return sorted(scores, key=lambda one: -one.summary.mean if one.summary.n else math.inf)


def on_same_data(analysis: Analysis, recipe: str) -> Iterator[str]:
    """Yield what a notebook's choices scored on data that is the same for all."""
    frames = analysis.frames
    found = recipe_variants(analysis, recipe)
    for slug, changed in found:
        parts = []
        for metric in (analysis.metric, EXACT):
            summary = frames.summary(slug, metric)
            if summary.n:
                parts.append(f"{readable(metric)} {_mean(summary, metric)}")
        which = f"{word('changed', changed)}: " if len(found) > 1 else ""
        seen = "; the answer is visible to it" if _sees_answer(frames.by_slug[slug]) else ""
        yield f"{which}{', '.join(parts) or 'not finished'}{seen}"
    reason = refusal(analysis, recipe)
    if reason:
        yield f"refused: {reason}"


def _sees_answer(variant: VariantRecord) -> bool:
    return any(pitfall.name == FUTURE for pitfall in variant.pitfalls)


def _loss(analysis: Analysis, slug: str) -> Iterator[str]:
    frames = analysis.frames
    summary = frames.summary(slug, analysis.metric)
    run = frames.path(str(frames.rows(slug).index[0]))
    words = _rows(RunDirectory(run).record)
    guess = f"; guessing among {words:,} words gives {math.log(words):.2f}" if words else ""
    if summary.n:
        yield f"loss {_mean(summary, analysis.metric)}{guess}"


def _rows(record: RunRecord) -> int | None:
    """Return the number of words among which a model of the run chooses."""
    words = (record.data.get("vocabulary") or {}).get("target")
    rows = record.config["model"].get("min_vocab_size")
    known = [int(one) for one in (words, rows) if one]
    return max(known) if known else None


def _translations(analysis: Analysis, slug: str) -> Iterator[str]:
    """Yield how many translations are right, and how many are nothing, over all seeds."""
    frames = analysis.frames
    written = [
        one for run in frames.rows(slug).index for one in read_translations(frames.path(str(run)) / "translations.tsv")
    ]
    if not written:
        yield "no translations: the notebook defines none"
        return
    exact = sum(one.exact for one in written)
    said = [one for one in written if one.hypothesis.strip()]
    empty = f"; {len(written) - len(said):,} empty" if len(said) < len(written) else ""
    yield f"{exact:,} of {counted(len(written), 'translation')} right{empty}"
    if said:
        yield f"“{_cut(said[0].source)}” → “{_cut(said[0].hypothesis)}”"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _mean(summary: Summary, metric: str) -> str:
    mean = show(summary.mean, metric)
    if not math.isfinite(summary.low):
        return mean
    return f"{mean} ({show(summary.low, metric)} to {show(summary.high, metric)})"
