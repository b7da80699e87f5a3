"""Everything a report says, as plain values: the page and the Markdown file print the same."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headtohead.analysis.contrasts import Contrast, loss_mismatch
from headtohead.analysis.sentences import SentenceTest, sentence_tests
from headtohead.analysis.study import Analysis, ceiling_verdicts
from headtohead.report.answer import answer
from headtohead.report.attention import Gallery, gallery
from headtohead.report.facts import facts, uneven_origins
from headtohead.report.figures.palette import Palette
from headtohead.report.parts import parts
from headtohead.report.rows import AloneRow, Costs, FactorRow, FaultRow, Score, VariantRow
from headtohead.report.translations import Sample, samples
from headtohead.statistics.paired_tests import Summary
from headtohead.storage import metrics

MOST_NAMES = 12
"""Variants that a cell names one by one."""

MOST_ROWS = 200
"""Variants a table lists; a larger study's table is results.csv."""


@dataclass(frozen=True)
class Content:
    """The report as text, tables and pictures' data; everything is computed at first use."""

    analysis: Analysis
    source: str | None = None

    @cached_property
    def experiment(self) -> Mapping[str, Any]:
        """The experiment's own record."""
        return self.analysis.frames.experiment

    @cached_property
    def answer(self) -> str:
        """The answer in one sentence."""
        return answer(self.analysis)

    @cached_property
    def palette(self) -> Palette:
        """Colours, as in the figures."""
        return Palette(self.analysis.frames)

    @cached_property
    def metric(self) -> str:
        """The primary metric in words."""
        return metrics.readable(self.analysis.metric)

    @cached_property
    def banner(self) -> str | None:
        """What must be said before anything else: that variants are incomplete."""
        missing = self.analysis.incomplete
        if not missing:
            return None
        states = self.analysis.frames.runs["state"]
        final = int(states.isin(["DONE", "DIVERGED"]).sum())
        total = len(states)
        count = f"{len(missing)} of {len(self.analysis.frames.variants)} variants are incomplete"
        if self.analysis.allow_partial:
            return (
                f"Partial: {count} ({final} of {total} runs have a result). They are ranked on "
                f"the seeds that finished, because --allow-partial was given; what finished "
                f"first is not a random sample."
            )
        return (
            f"Incomplete: {count} ({final} of {total} runs have a result). They are listed but "
            f"not ranked; run the experiment again to finish them, or pass --allow-partial."
        )

    @cached_property
    def axes_judged(self) -> bool:
        """Whether the answer speaks of axes rather than of single variants."""
        return any(contrast.paired is not None for contrast in self.analysis.factors.contrasts)

    @cached_property
    def facts(self) -> list[str]:
        """What a reader should know beside the answer, one sentence each."""
        return facts(self.analysis)

    @cached_property
    def faults(self) -> list[FaultRow]:
        """Choices of the variants that are faults, each once, with the variants that have it."""
        having: dict[tuple[str, str, str], list[str]] = {}
        rows = self.analysis.frames.variants
        for slug, row in rows.items():
            for fault in row.get("faults", ()):
                key = (fault["name"], fault["field"], fault["says"])
                having.setdefault(key, []).append(self._title(slug))
        return [
            FaultRow(*key, "every variant" if len(titles) == len(rows) else _some(titles))
            for key, titles in having.items()
        ]

    @cached_property
    def variants(self) -> list[VariantRow]:
        """The table of variants, best first."""
        contrasts = {c.left: c for c in self.analysis.variants.contrasts}
        return [self._variant(slug, contrasts.get(slug)) for slug in self.listed]

    @cached_property
    def listed(self) -> list[str]:
        """The variants that tables list: all, or the best and the baseline; a path's ends."""
        if self.analysis.path:
            return [self.analysis.path.start, self.analysis.path.end]
        slugs = list(self.analysis.order)
        baseline = self.analysis.frames.baseline
        kept = slugs[:MOST_ROWS]
        return kept if baseline in kept or baseline not in slugs else [*kept[:-1], baseline]

    @cached_property
    def unlisted(self) -> int:
        """How many variants the tables leave out."""
        return len(self.analysis.order) - len(self.listed)

    def _variant(self, slug: str, contrast: Contrast | None) -> VariantRow:
        analysis = self.analysis
        baseline = slug == analysis.frames.baseline
        withheld = analysis.withheld.get(slug, "")
        partial = analysis.unranked.get(slug, "") if analysis.allow_partial else ""
        verdict, word, reason = _verdict(contrast)
        equal = analysis.frames.variants[slug].get("equal_to")
        note = f"not ranked: {withheld}" if withheld else partial or (f"equals {self._title(equal)}" if equal else "")
        return VariantRow(
            slug=slug,
            title=self._title(slug),
            colour=self.palette.colour(slug),
            baseline=baseline,
            score=Score("–", reason=f"not ranked: {withheld}")
            if withheld
            else _score(analysis.summaries[slug], analysis.metric),
            n=analysis.summaries[slug].n,
            difference=_difference(contrast),
            verdict="baseline" if baseline else verdict,
            word="baseline" if baseline else word,
            reason="" if note else reason,
            holm_p=metrics.show_p(contrast.holm_p if contrast else None),
            sign_flip_p=metrics.show_p(contrast.paired.sign_flip_p if contrast and contrast.paired else None),
            effect=_effect(contrast),
            costs=self.costs(slug),
            note=note,
            faults=tuple(one["name"] for one in analysis.frames.variants[slug].get("faults", ())),
        )

    def costs(self, slug: str) -> Costs:
        """Return the fairness columns of a variant; speed and time are means over its runs."""
        variant = self.analysis.frames.variants[slug]
        d_ff, asked = variant.get("d_ff"), variant.get("d_ff_asked")
        return Costs(
            parameters=metrics.show_count((variant.get("parameters") or {}).get("total")),
            flops=metrics.show_count(variant.get("flops_per_token")),
            speed=metrics.show_count(self._mean(slug, "system/tokens_per_second")),
            memory=_whole(self._mean(slug, "system/peak_memory_mb")),
            seconds=_seconds(self._mean(slug, "system/wall_seconds")),
            inner=str(variant.get("inner_width", "–")),
            widened=f"d_ff {d_ff} for {asked}" if d_ff != asked else "",
        )

    @cached_property
    def together(self) -> str | None:
        """What a reader must know of time and memory: how many runs one program trained."""
        sizes = {
            len(execution.get("stack") or [None])
            for record in self.analysis.frames.records.values()
            if (execution := record.get("execution"))
        }
        if not sizes or sizes == {1}:
            return None
        low, high = min(sizes), max(sizes)
        number = f"{high}" if low == high else f"{low} to {high}"
        return (
            f"Tokens per second, memory and time are those of the program that trained {number} "
            f"runs of a variant together; parameters and FLOPs are those of one run."
        )

    def _mean(self, slug: str, metric: str) -> float:
        return self.analysis.frames.summary(slug, metric).mean

    @cached_property
    def factors(self) -> list[FactorRow]:
        """The table of factor contrasts, in order of the design."""
        return [self._factor(contrast) for contrast in self.analysis.factors.contrasts]

    def _factor(self, contrast: Contrast) -> FactorRow:
        verdict, word, reason = _verdict(contrast)
        twin = self._alone_twin(contrast)
        return FactorRow(
            axis=str(contrast.axis),
            left=f"{contrast.left} ({contrast.within})" if contrast.within else contrast.left,
            right=contrast.right,
            difference=_difference(contrast),
            alone=_difference(twin),
            alone_difference=_difference(twin).mean,
            spread=" to ".join(metrics.show(end, contrast.metric, signed=True) for end in contrast.spread)
            if contrast.spread
            else "–",
            verdict=verdict,
            word=word,
            reason=reason,
            holm_p=metrics.show_p(contrast.holm_p),
            sign_flip_p=metrics.show_p(contrast.paired.sign_flip_p if contrast.paired else None),
            effect=_effect(contrast),
            settings=len(contrast.pairs),
        )

    def _alone_twin(self, contrast: Contrast) -> Contrast | None:
        return next((c for c in self._alone_factors if c.name == contrast.name), None)

    @cached_property
    def _alone_factors(self) -> tuple[Contrast, ...]:
        from headtohead.analysis.contrasts import factor_family

        name = metrics.alone(self.analysis.metric)
        if name not in self.analysis.frames.runs:
            return ()
        return factor_family(self.analysis.frames, name, allow_partial=self.analysis.allow_partial).contrasts

    @cached_property
    def report_metrics(self) -> list[str]:
        """The further metrics the experiment asked for, those that some run has."""
        asked = [str(name) for name in self.experiment["metrics"].get("report", [])]
        return [name for name in asked if name in self.analysis.frames.runs and name != self.analysis.metric]

    def other_scores(self, slug: str) -> list[Score]:
        """Return a variant's further metrics, blank where they would mislead."""
        return [self.score(slug, metric) for metric in self.report_metrics]

    def score(self, slug: str, metric: str) -> Score:
        """Return a variant's mean of any metric, blank with the reason where it would mislead."""
        reason = self.analysis.withheld.get(slug) or loss_mismatch(
            self.analysis.frames, slug, self.analysis.frames.baseline, metric
        )
        if reason:
            return Score("–", reason=reason)
        return _score(self.analysis.frames.summary(slug, metric), metric)

    @cached_property
    def alone(self) -> list[AloneRow]:
        """Batched beside one at a time, where both were taken."""
        name = metrics.alone(self.analysis.metric)
        if name not in self.analysis.frames.runs:
            return []
        verdicts = ceiling_verdicts(self.analysis)
        return [
            self._alone(slug, name, verdicts.get(slug, ""))
            for slug in self.listed
            if self.analysis.frames.scores(slug, name)
        ]

    def _alone(self, slug: str, name: str, ceiling: str) -> AloneRow:
        from headtohead.statistics.paired_tests import paired

        frames, metric = self.analysis.frames, self.analysis.metric
        one, batched = frames.scores(slug, name), frames.scores(slug, metric)
        seeds = sorted(one.keys() & batched.keys())
        both = paired([batched[s] for s in seeds], [one[s] for s in seeds])
        return AloneRow(
            title=self._title(slug),
            colour=self.palette.colour(slug),
            batched=self.score(slug, metric),
            alone=self.score(slug, name),
            difference=Score(metrics.show(both.mean, metric, signed=True), _interval(both.low, both.high, metric)),
            loss=self.score(slug, "test/loss"),
            loss_alone=self.score(slug, "test/loss_alone"),
            ceiling=ceiling,
            suspect="suspect" in ceiling,
        )

    @cached_property
    def gallery(self) -> Gallery | None:
        """Attention maps, or None where none were recorded."""
        return gallery(self.analysis)

    @cached_property
    def parts(self) -> dict[str, str]:
        """What pictures of a large study leave out, by picture."""
        return parts(self.analysis)

    @cached_property
    def samples(self) -> list[Sample]:
        """Sample translations."""
        return samples(self.analysis)

    @cached_property
    def sentence_tests(self) -> list[SentenceTest]:
        """Median seeds compared sentence by sentence."""
        return sentence_tests(self.analysis)

    @cached_property
    def unfinished(self) -> list[dict[str, str]]:
        """Runs that are not DONE, with what became of them."""
        runs = self.analysis.frames.runs
        rows = runs[runs["state"] != "DONE"]
        return [
            {
                "run": str(name),
                "title": str(row["title"]),
                "seed": str(row["seed"]),
                "state": str(row["state"]),
                "reason": str(row["reason"] or "–"),
                "step": _progress(row["step"], row["steps"]),
            }
            for name, row in rows.iterrows()
        ]

    @cached_property
    def excluded(self) -> list[dict[str, str]]:
        """Combinations left out, with the reason."""
        return [
            {
                "name": row.get("title") or " · ".join(map(metrics.label, row["axes"].values())),
                "reason": str(row["reason"]),
                "source": {"exclude": "by the experiment file", "undefined": "undefined"}.get(
                    str(row.get("source")), str(row.get("source") or "–")
                ),
            }
            for row in self.experiment.get("excluded", [])
        ]

    @cached_property
    def reused(self) -> list[tuple[str, str]]:
        """Runs taken from another experiment, by name and where they lie."""
        runs = self.analysis.frames.runs
        rows = runs[runs["reused_from"].notna()]
        return [(f"{row['title']}, seed {row['seed']}", str(row["reused_from"])) for _, row in rows.iterrows()]

    @cached_property
    def stale(self) -> list[str]:
        """Signs that the runs were not all made by the same code or on the same footing."""
        return uneven_origins(self.analysis.frames)

    @cached_property
    def signatures(self) -> list[str]:
        """How BLEU and chrF were computed, in sacreBLEU's words."""
        found: dict[str, set[str]] = {}
        for record in self.analysis.frames.records.values():
            for name, text in (record.get("signatures") or {}).items():
                found.setdefault(name, set()).add(str(text))
        return [f"{metrics.readable(name)}: {text}" for name, texts in sorted(found.items()) for text in sorted(texts)]

    @cached_property
    def decodings(self) -> list[str]:
        """How translations were written, each way once, by runs that say so."""
        records = self.analysis.frames.records.values()
        ways = [record["decoding"] for record in records if record.get("decoding")]
        return sorted({_decoding(way) for way in ways})

    @cached_property
    def fused_difference(self) -> str | None:
        """The largest difference between the explicit and the fused path, over all runs."""
        runs = self.analysis.frames.runs
        if "attention/fused_difference" not in runs:
            return None
        largest = float(runs["attention/fused_difference"].max())
        return None if math.isnan(largest) else f"{largest:.1e}"

    @cached_property
    def statistics(self) -> list[str]:
        """How the numbers were made, three sentences and the notes that apply."""
        variants, factors = self.analysis.variants, self.analysis.factors
        told = [
            "Every contrast is paired by seed: the same seed on both sides, so that what a seed "
            "does to all variants cancels; intervals are 95 % t-intervals over seeds and are not "
            "adjusted.",
            "A verdict is a paired t-test at 5 % after Holm's correction for the number of "
            "declared contrasts, variants against the baseline, factor contrasts and the choices "
            "of a path each being a family; the exact sign-flip p stands beside it unadjusted, "
            "and further metrics are described, not tested.",
            "“Could have seen ≥ x” is the minimum detectable effect: the true difference that this "
            "many seeds with this spread find in 80 of 100 studies at the level of Holm's first "
            "step, in the largest family that tests the contrast. No difference detected is not "
            "equality.",
        ]
        families = {"variants": variants, "factors": factors}
        if self.analysis.path:
            families["choices"] = self.analysis.path.family
        for name, family in families.items():
            if family.tested:
                counted = f"{family.tested} contrast{'s' * (family.tested != 1)}"
                told.append(
                    f"Sign-flip floor for {name}: {counted} and {family.seeds} "
                    f"seeds cannot bring a Holm-adjusted sign-flip p below {family.floor:.3g}; "
                    f"{family.seeds_needed} seeds could pass 0.05. The minimum detectable effect "
                    f"is {family.mde:.2f} standard deviations of the paired difference."
                )
        seeds = len(self.analysis.frames.seeds)
        if seeds == 1:
            told.append("One seed: no p-value can be given.")
        elif seeds < 6:
            told.append(f"{seeds} seeds: even a single sign-flip test cannot reach 0.05 with fewer than 6.")
        return told

    @cached_property
    def commands(self) -> list[str]:
        """How to repeat the experiment and this report."""
        name, file = self.experiment["name"], self.experiment.get("file")
        run = self.experiment.get("command") or f"h2h run {file}"
        partial = " --allow-partial" if self.analysis.allow_partial else ""
        return [str(run), f"h2h report {file or name}{partial}"]

    @cached_property
    def versions(self) -> dict[str, str]:
        """What the experiment was planned with; of the platform, what a result may depend on."""
        recorded = self.experiment.get("versions") or {}
        shown = {name: str(value) for name, value in recorded.items() if value is not None}
        found = re.match(r"([A-Za-z]+)-.*?(x86_64|aarch64|arm64|AMD64)", shown.get("platform", ""))
        return {**shown, "platform": " ".join(found.groups())} if found else shown

    def chip(self, slug: str) -> str:
        """Return a variant's colour."""
        return self.palette.colour(slug)

    def _title(self, slug: str) -> str:
        return str(self.analysis.frames.variants[slug]["title"])

    title = _title


def _some(titles: Sequence[str]) -> str:
    """Name variants, of very many the first ones."""
    more = len(titles) - MOST_NAMES
    return ", ".join(titles) if more <= 1 else f"{', '.join(titles[:MOST_NAMES])} and {more} more"


def _verdict(contrast: Contrast | None) -> tuple[str, str, str]:
    """Return the verdict as shown, the one word that styles it, and what is to be said of it."""
    if contrast is None:
        return "–", "none", ""
    word = contrast.verdict if contrast.found else "none"
    if not contrast.verdict:
        return "–", word, contrast.reason or ""
    return contrast.words, word, contrast.reason or ""


def _difference(contrast: Contrast | None) -> Score:
    if contrast is None or contrast.paired is None:
        return Score("–", reason=contrast.reason or "" if contrast else "")
    paired, metric = contrast.paired, contrast.metric
    return Score(metrics.show(paired.mean, metric, signed=True), _interval(paired.low, paired.high, metric))


def _effect(contrast: Contrast | None) -> str:
    if contrast is None or contrast.paired is None or math.isnan(contrast.paired.effect):
        return "–"
    return metrics.show(contrast.paired.effect, "system/effect", signed=True)


def _score(summary: Summary, metric: str) -> Score:
    return Score(metrics.show(summary.mean, metric), _interval(summary.low, summary.high, metric))


def _interval(low: float, high: float, metric: str) -> str:
    if math.isnan(low):
        return ""
    return f"{metrics.show(low, metric)} to {metrics.show(high, metric)}"


def _whole(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:,.0f}"


def _seconds(value: float) -> str:
    return _whole(value) if value >= 100 else metrics.show(value, "system/wall_seconds")


def _progress(step: Any, steps: Any) -> str:
    known = [value for value in (step, steps) if value is not None and not math.isnan(value)]
    return " of ".join(f"{int(value)}" for value in known) if len(known) == 2 else "–"


def _decoding(way: Mapping[str, Any]) -> str:
    """Say in words what ``decoding`` of results.json says."""
    text = str(way["decode"])
    if "size" in way:
        text += f" of {way['size']}, length penalty {way['length_penalty']:g}"
    return f"{text}, at most {way['max_length']} words" if "max_length" in way else text
