"""Sentences of remarks, captions and notes: patterns, and the values of their numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from recompute import HIGHER, half_width
from scipy import optimize, stats

from report_text.numbers import METRICS, SCALES, SPANS, Expected, N, agrees, interval
from report_text.page import NOT_COUNTED, POINTS, Page, seed_table, unescaped


def detectable(sources: Sequence[Mapping[str, float]], level: float) -> float:
    """Return the true difference that an interval separates from 0 in 80 % of studies.

    The width varies as that of a single source with the degrees of Satterthwaite.
    """
    error = math.sqrt(sum(own["variance"] for own in sources))
    parts = [
        own["variance"] * stats.t.isf(level / 2, own["degrees"]) ** 2 / own["degrees"] ** 0.5
        for own in sources
    ]
    half = half_width([(own["variance"], own["degrees"]) for own in sources], level)
    degrees = half**4 / sum(part**2 for part in parts)
    limit = half / error

    def power(shift: float) -> float:
        upper, lower = stats.nct.sf(limit, degrees, shift), stats.nct.cdf(-limit, degrees, shift)
        return float(upper + (0.0 if math.isnan(lower) else lower)) - 0.8

    return float(optimize.brentq(power, 0.01, 60)) * error


# Sentences: a pattern, and the values of its groups. Other digits of the pattern are fixed text.

Rule = tuple[str, Callable[[Page, re.Match[str]], Sequence[float | None]]]


def baseline_spread(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    """Return mean and standard deviation of the baseline, and the pooled one of the variants named."""
    own = [*page.scores(page.baseline, page.metric).values()]
    slugs = list(page.answer["scores"])
    if "of its data and size" in found[0]:
        first = page.runs[page.runs["variant"] == page.baseline].iloc[0]
        columns = [name for name in ("data", "size") if name in page.runs]
        same = page.runs[(page.runs[columns] == first[columns]).all(axis=1)]
        slugs = [slug for slug in slugs if page.equal.get(slug, slug) in {*same["variant"]}]
    sds = [np.std([*page.scores(slug, page.metric).values()], ddof=1) for slug in slugs]
    return [np.mean(own), np.std(own, ddof=1), math.sqrt(np.mean(np.square(sds)))]


def margin(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    return [page.answer["margin"] if page.answer["margin"] is not None else None]


def learning(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    trends = page.answer["training"]["variants"].values()
    falls = [
        100 * own["fall"] / own["loss"] for own in trends if own["verdict"] == "still learning"
    ]
    return [min(falls), max(falls)]


def power(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    """Return the seeds and the largest detectable difference of the main contrasts without a shown difference."""
    main = [own for own in page.answer["contrasts"] if own["main"] and own["interval"]]
    undecided = [own for own in main if own["direction"] == "no difference shown"]
    sizes = [detectable(own["sources"], page.level_of(own)) for own in undecided]
    return [len(undecided[0]["seeds"]), None if page.answer["looks"] else max(sizes)]


def largest_ratio(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    """Return the largest variance ratio of a family with a main contrast."""
    families = {own["family"] for own in page.answer["contrasts"] if own["main"]}
    return [max(page.ratio_of(family) for family in families)]


FAMILIES = {
    "variants against the baseline": "variants",
    "changes": "factors",
    "interactions": "interactions",
    "contrasts that the file declares": "declared",
    "added changes": "added",
    "taken changes": "taken",
}
"""Family in ``answer.json`` by its name in the section on statistics."""


def ratio(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    """Return the ratio of the two variances of a family; None if its scores are of other data or metrics."""
    family = FAMILIES[found[2]]
    members = [own for own in page.answer["contrasts"] if own["family"] == family]
    is_primary = all(own["metric"] == page.metric and not own["lengths"] for own in members)
    has_groups = any(name in page.runs for name in ("data", "size"))
    is_simple = is_primary and not has_groups
    return [page.ratio_of(family) if is_simple else None, None]


def seed_count(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    return [page.runs["seed"].nunique()]


def single_score(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    return interval([*page.scores(page.baseline, page.metric).values()], page.metric)


def setup(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    """Return parameters, steps and seeds; the other numbers of the line are configuration and sizes of the data."""
    counts = page.runs["parameters/total"]
    units = [SCALES[unit] for unit in re.findall(r"[\d.] ([kM])(?= to | parameters)", found[0])]
    ends = [counts.min() / units[0], counts.max() / units[-1]]
    stopped = page.runs["stopped_early"].fillna(False).astype(bool)
    trained = page.runs["step"].where(stopped, page.runs["steps"])
    return [*ends, trained.min(), trained.max(), page.runs["seed"].nunique()]


def distance_from_best(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    best = SPANS[page.metric.rpartition("/")[2]][1]
    return [abs(best - page.mean_of(page.baseline, page.metric))]


def not_better(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    """Return the score of the reference point, the variants that are not above it, and their best score.

    A range of scores is of variants with other test sentences, of which ``answer.json`` has no points.
    """
    name, _, highest, _, _, best = found.groups()
    column = next(column for readable, column in METRICS.items() if f" {readable})" in found[0])
    point = page.answer["reference_points"]["scores"][POINTS[name]][column]
    means = {slug: page.mean_of(slug, column) for slug in page.titles}
    if highest is not None or "data." in found[0]:
        fitting = [mean for mean in means.values() if agrees(best, mean)]
        return [None, None, None, None, None, max(fitting, default=math.nan)]
    below = [mean for mean in means.values() if mean <= point]
    return [None, point, None, len(below), len(means), max(below, default=math.nan)]


def wide_margin(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    """Return the margin, and the best mean, which is nearer to the worst possible score."""
    means = [page.mean_of(slug, page.metric) for slug in page.titles]
    best = max(means) if page.metric.endswith(HIGHER) else min(means)
    worst = SPANS[page.metric.rpartition("/")[2]][0]
    is_wide = page.answer["margin"] > abs(best - worst)
    return [page.answer["margin"] if is_wide else math.nan, best]


def matched_widths(page: Page, found: re.Match[str]) -> Expected:
    """Return how many variants matching changes, the least and the largest change in percent, and the matched count."""
    changes = []
    for setting in page.answer["settings"].values():
        if setting["d_ff"] != setting["d_ff_asked"]:
            changes.append(100 * (setting["d_ff"] / setting["d_ff_asked"] - 1))
    column = {
        "non-embedding parameters": "parameters/non_embedding",
        "FLOPs per token": "flops_per_token",
    }
    counts = page.runs[column[found[5]]]
    target = next((count for count in counts if agrees(found[4], count)), math.nan)
    return [len(changes), min(changes), max(changes), target]


def trained_steps(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    return [next((step for step in page.runs["step"] if agrees(found[1], step)), math.nan)]


def passes(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    trends = page.answer["training"]["variants"].values()
    counts = [own["passes"] for own in trends if own["verdict"] == "schedule ended"]
    return [min(counts), max(counts)]


def baseline_loss(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    """Return the baseline's loss; those of unigram and bigram models are facts of the data."""
    return [page.mean_of(page.baseline, "test/loss"), None, None]


def trend_count(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    return [
        sum(own["verdict"] == found[2] for own in page.answer["training"]["variants"].values()),
        None,
    ]


def still_learning(page: Page, found: re.Match[str]) -> Expected:
    """Return the number of variants that still learn, and that of all."""
    trends = page.answer["training"]["variants"].values()
    return [sum(own["verdict"] == "still learning" for own in trends), len(trends)]


def gap(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    """Return the difference in validation loss, and the steps, of the gap that fits."""
    for own in page.answer["training"]["gaps"]:
        if agrees(found[1], own["loss_difference"]):
            return [own["loss_difference"], steps_of(own["baseline_steps"], page)]
    return [math.nan, math.nan]


def steps_of(steps: float | str, page: Page) -> float:
    """Return steps with two significant digits, at most those of the baseline's training."""
    most = float(page.runs.loc[page.runs["variant"] == page.baseline, "step"].max())
    return most if steps == "inf" or float(steps) > most else float(f"{float(steps):.2g}")


def run_counts(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    runs = page.runs
    lost, reused = (
        (~runs["state"].isin(["DONE", "DIVERGED"])).sum(),
        runs["reused_from"].notna().sum(),
    )
    return [len(runs), len(page.all_titles), runs["seed"].nunique(), lost, None, reused]


def correlation(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    """Return the intra-class correlation ICC(3, 1) of seeds with its F-interval."""
    table = seed_table(page)
    variants, seeds = table.shape
    residual = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    degrees = seeds - 1, (seeds - 1) * (variants - 1)
    ratio = variants * table.mean(axis=0).var(ddof=1) / ((residual**2).sum() / degrees[1])
    limits = stats.f.ppf(0.975, *degrees), stats.f.ppf(0.975, *degrees[::-1])
    return [(f - 1) / (f + variants - 1) for f in (ratio, ratio / limits[0], ratio * limits[1])]


def families(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    tested = {own["family"] for own in page.answer["contrasts"] if own["difference"] is not None}
    count = len(tested) + bool(page.rows_of("Ranking"))
    return [count, 5 * count]


SCOPES = {
    "variant": "variants",
    "change": "factors",
    "interaction": "interactions",
    "declared contrast": "declared",
    "added change": "added",
    "taken change": "taken",
}
"""Family in ``answer.json`` by its name in a caption."""


def scope(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    """Return the number of different contrasts of a family that vary."""
    family = SCOPES[found[2].rstrip("s")]
    members = [
        own
        for own in page.answer["contrasts"]
        if own["family"] == family
        and own["difference"] is not None
        and own["direction"] not in NOT_COUNTED
    ]
    keys: list[Mapping[Any, float]] = []
    for own in members:
        weights = page.weights(own)
        if weights not in keys and {side: -weight for side, weight in weights.items()} not in keys:
            keys.append(weights)
    return [len(keys)]


SECTIONS = {
    "Every variant": ("Each variant against the baseline", "variants"),
    "The difference that a change makes": ("One change at a time", "factors"),
    "Whether the effect": ("Interactions", "interactions"),
}
"""Section and family in ``answer.json`` by the beginning of a caption."""


def shown_above(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    """Return the number of contrasts of a family that its table lacks."""
    for beginning, (section, family) in SECTIONS.items():
        if found.string.startswith(beginning):
            members = [own for own in page.answer["contrasts"] if own["family"] == family]
            return [len(members) - len(page.rows_of(section))]
    return [None]


def collapsed_runs(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    """Return the number of collapsed runs of each variant that has some, in the order of the table."""
    slugs = page.answer["collapses"]
    return [page.results.collapse(slug, page.metric)["collapsed"] for slug in slugs]


def all_collapsed_runs(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    return [page.results.collapsed.sum()]


def baseline_score(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    return [page.mean_of(page.baseline, page.metric)]


RULES: list[Rule] = [
    (
        rf"far above that of all others: {N} of [^.]*?(?:(?:,| and) {N} of [^.]*?)?\.",
        collapsed_runs,
    ),
    (rf"{N} runs? collapsed and left out", all_collapsed_runs),
    (rf"Baseline: .*(?:, | \()[\w -]+ {N}\)?\.", baseline_score),
    (rf"{N} of this family (?:is|are) above", shown_above),
    (
        rf"has a mean [\w -]+ of {N}, with a standard deviation of {N} over seeds"
        rf"(?:; pooled over (?:all|the ranked) variants(?: of its data and size)?, it is {N})?",
        baseline_spread,
    ),
    (rf"The margin, the smallest difference that matters, is {N} ", margin),
    (rf"[Tt]he margin of {N}", margin),
    (rf"With {N} seeds, a difference of {N} would be shown in 80 % of studies", power),
    (rf"is {N} times the residual variance \(([\w ]+)\); about 1 is", ratio),
    (
        rf"(?:for|and) {N} (variants?|interactions?|declared contrasts?|(?:(?:added|taken) )?changes?)",
        scope,
    ),
    (rf"the validation loss[^:]*? fell by {N}(?: to {N})? % over the last fifth", learning),
    (rf"validation loss {N}; at (?:its|the) pace .*?(?:about|more than) {N} steps", gap),
    (
        rf"{N} runs?: {N} variants?, {N} seeds?\. {N} without a result, {N} combinations excluded, {N} reused",
        run_counts,
    ),
    (rf"Written by headtohead from {N} runs", lambda page, found: [len(page.runs)]),
    (rf"Intra-class correlation of seeds: {N} \(95 % interval {N} to {N}\)", correlation),
    (
        rf"{N} families, each with a wrong interval in (?:at most|about) 5 % .* in (?:at most|about) {N} %",
        families,
    ),
    (
        rf"differs from that of training by at most {N}",
        lambda page, found: [page.runs["attention/fused_difference"].max()],
    ),
    (
        rf"{N} seeds: with fewer than 6, more than 5 % of the verdicts can be wrong",
        seed_count,
    ),
    (
        rf"on the baseline's {N} test sentences",
        lambda page, found: [page.answer["reference_points"]["sentences"]],
    ),
    (rf"Its [\w ]+ is {N} \(95 % interval {N} to {N}\)", single_score),
    (rf"{N} (still learning|levelled off|schedule ended|rising|not judged)\b", trend_count),
    (
        rf"^Set-up: .*?{N} [kM](?: to {N} [kM])? parameters; {N}(?: (?:to|/) {N})? steps\b.*; {N} seeds?\.$",
        setup,
    ),
    (rf"is {N} from the best possible", distance_from_best),
    (
        rf"Not better than ([\w -]+) \({N}(?: to {N})? [\w ]+\): (?:{N} of {N} variants|.*); the best of them has {N}",
        not_better,
    ),
    (
        rf"The margin, {N}, is wider than the distance of every score .*\(best mean {N}\)",
        wide_margin,
    ),
    (
        rf"match: [\w-]+ changes d_ff of {N} variants? by {N} %(?: to {N} %)?, to the {N} ([\w -]+) of the ",
        matched_widths,
    ),
    (rf"before {N} of {N} variants levelled off", still_learning),
    (rf"{N} of {N} variants still learn", still_learning),  # reports of earlier versions
    (rf"the variance of the differences is {N} times the residual", largest_ratio),
    (rf"after {N} steps", trained_steps),
    (rf"The schedule ended after {N}(?: to {N})? passes over the training data", passes),
    (
        rf"The baseline's test loss, {N},.*?unigram model \({N}\)"
        rf"(?:, but not lower than that of a bigram model \({N}\))?",
        baseline_loss,
    ),
    (
        rf"The baseline's test loss, {N}, is lower than that of a bigram model \({N}\)",
        baseline_loss,
    ),
]

# These rules also receive the text before the pattern, because their values depend on the contrast named there.

NamedRule = tuple[str, Callable[[Page, str, re.Match[str]], Sequence[float]]]

TRENDS = {"still_learning": "still learning", "schedule_ended": "schedule ended"}
"""Verdict on the training of the variants in a remark, by rule of the remark."""


def further_variants(page: Page, before: str, found: re.Match[str]) -> Expected:
    """Return the number of variants of a remark without those that it names before; NaN without such a remark."""
    for remark in page.answer["remarks"]:
        text = " ".join(unescaped(remark["text"]).split())
        for part in re.finditer(r"and \d+ more", text):
            if before.endswith(text[: part.start()]):
                return [num_unnamed(variants_of(page, remark), before.removesuffix(" "))]
    return [math.nan]


def variants_of(page: Page, remark: Mapping[str, Any]) -> list[str]:
    """Return the titles of the variants of a remark; on their training, of those with its verdict."""
    slugs = remark["variants"]
    if remark["rule"] in TRENDS:
        trends = page.answer["training"]["variants"]
        verdict = TRENDS[remark["rule"]]
        slugs = [slug for slug, own in trends.items() if own["verdict"] == verdict]
    return [page.all_titles[slug] for slug in slugs]


def num_unnamed(titles: Sequence[str], text: str) -> float:
    """Return the number of titles that are not in the list of titles that ends a text; NaN if it ends with none.

    >>> num_unnamed(["a", "b", "c", "d", "e"], "the loss of c, a, b")
    2.0
    >>> num_unnamed(["a, x", "b", "c", "d"], "the loss of “a, x”, b")
    2.0
    """
    left = text.replace("“", "").replace("”", "")
    unnamed = sorted(titles, key=len)
    while True:
        ends = [title for title in unnamed if left.endswith(" " + title)]
        if not ends:
            break
        unnamed.remove(ends[-1])
        left = left.removesuffix(ends[-1]).removesuffix(", ")
    return float(len(unnamed)) if len(unnamed) < len(titles) else math.nan


def spread_ratio(page: Page, before: str, found: re.Match[str]) -> Expected:
    """Return the standard deviation of the named variant in units of the pooled deviation of the others.

    The others are the least variable variants. Reports do not print their number, so every number is tried, and the
    ratio that agrees with the text is returned.
    """
    text = before.replace("“", "").removesuffix("”")
    named = [slug for slug, title in page.titles.items() if text.endswith(f" {title}")]
    if not named:
        return [math.nan]
    slug = max(named, key=lambda slug: len(page.titles[slug]))
    variances = {
        other: np.var([*page.scores(other, page.metric).values()], ddof=1) for other in page.titles
    }
    ascending = sorted(variances.values())
    for num_others in range(2, len(ascending)):
        ratio = math.sqrt(variances[slug] / np.mean(ascending[:num_others]))
        if variances[slug] >= ascending[num_others] and agrees(found[1], ratio):
            return [ratio]
    return [math.nan]


NAMED_RULES: list[NamedRule] = [
    (rf" \({N} times(?: the standard deviation of the others)?\)", spread_ratio),
    (rf"and {N} more\b", further_variants),
]

FIXED = [
    r"with six to twelve seeds and losses of .* three seeds \d+ %, \d+ % and \d+ %",
    r"\bh2h \w+",
    r"fewer than 100 steps",
    r"- (?:Best|Chosen) learning rate: .*",
    r"on seeds [\d, ]+(?: with train\.epochs [\d.]+)?, which the comparison",
    r"The sweep may have missed .*",
    r"is the difference a2 − a1 with b2, minus the difference a2 − a1 with b1",
    r"margin: \{test/log_error: 0\.22\} for 1\.25",
    r"one for each of \d+ lengths",
    r"experiments/\S+\.yaml",
    r"On the [\d,]+ test sentences (?:of|with)\b",
    r"(?:LEAKY split|Leak)[^:]*: [\d.]+ % of the (?:test|validation) .*",
    r"[\d.]+ % of the (?:test|validation) [a-z ]+ in training",
    r"Not better than a bigram model, .*\(test loss [\d.]+ nats\)",
    r"the learning rate (?:decays|decayed) \([^)]*\)",
    r"source also in training: [\d.]+ %",
    r"Pitfalls in \d+ of \d+ variants",
    r"^- \d+ data sets, which differ",
    r"\d+ to \d+ tokens",
    r"^\d+ more in the tables",
    r"95 % (?:t-)?intervals?",
    r"Intervals?: 95 %",
    r"95 %(?: for|, adjusted for)(?= \d+ [^.]*(?:\. Sources of variance|; they include))",
    r"95 % confidence intervals?",
    r"the level 0\.95\^\(1/k\)",
    r"in at least 95 % of studies",
    r"p is 1 − \(1 − p of the difference\)\^k",
    r"excludes 0; no difference shown if it contains 0",
    r"it contains 0 and lies within the margin",
    r"about 1 is expected",
    r"range in 95 % of the resamples",
    r"Magnusson et al\. 2025",
    r"t-tests? at 5 %",
    r"fewer than 20 test examples",
    r"more than [\d,]+ values of test examples",
    r"more than 1 %, by more than 0\.01 nats",
    r"validation loss at 80 % of the steps",
    r"numbered from 0",
    r"layer \d+, head \d+, one seed",
    r"Full colour is a weight of [\d.]+",
    r"At 0, both (?:sides|variants) have the same score",
    r"Right of 0: the model needs the head",
    r"“A: a2 − a1, by B: b2 − b1”.*",
    r"stack of \d+(?: to \d+)? runs",
    r"\(the first \d+ of the design\)",
    r"The maps of \d+ more variants",
    r"at most 0\.01 nats",
    r"cosine to [\d.]+",
]
"""Parts of sentences whose digits are not measured: definitions, and numbers of heads and stacks."""


# Tables: the numbers that a cell must have, in their order.
