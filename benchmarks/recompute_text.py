"""Recompute every number of the text of a report: sentences, remarks, captions and tables of ``report.md``.

    python benchmarks/recompute_text.py reports/quickstart [reports/...]

Nothing of headtohead is imported. Every number belongs to one of three kinds:

- recomputed: from the rows of ``results.csv``, with numpy and scipy. Intervals and p-values are those of
  ``answer.json``, which `recompute` recomputes; the falls of training losses and the scores of reference points are
  only in ``answer.json``.
- listed: no measurement, such as a field of the experiment file, a fact of the data set, a version or a fixed sentence.
- without a source: in a table of `NO_SOURCE`; its runs are not committed, and only the checksum protects it.

A number of no kind, or with another value, is printed with its line, and the exit code is 1. So is a sentence that
``answer.json`` has with other words, and a file that does not have the checksum of ``SHA256SUMS``. Of reports in
``reports/withdrawn.yaml``, only the checksums are checked.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from recompute import ALPHA, equal_slug, half_width, table_of, variance_ratio, weights_of
from scipy import optimize, special, stats
from withdrawn import reason_of

NUMBER = re.compile(r"([+−-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)( [kMGT]\b)?")
N = r"([+−-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)"
"""A number in the pattern of a sentence."""

SCALES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
NAME = "◆"

METRICS = {
    "BLEU": "test/bleu",
    "chrF": "test/chrf",
    "exact match": "test/exact_match",
    "test loss": "test/loss",
    "loss": "test/loss",
    "test token accuracy": "test/token_accuracy",
    "token accuracy": "test/token_accuracy",
    "bits per byte": "test/bits_per_byte",
    "validation loss": "valid/loss",
    "validation token accuracy": "valid/token_accuracy",
}
"""Column of ``results.csv`` by readable name."""

SPANS = {"exact_match": (0, 1), "token_accuracy": (0, 1), "bleu": (0, 100), "chrf": (0, 100)}
"""Smallest and largest value of a metric; of all others, 0 and infinity."""

CONFIGURATION = {"Set-up", "Data", "Reproduction"}
"""Sections without a measurement of the study: configuration, facts of the data set, versions."""

EXAMPLES = {"Outputs", "Translations side by side"}
"""Sections with test examples and their outputs, in which digits are tokens."""

NO_SOURCE = {
    (
        "By length of the source",
        None,
    ): "scores by source length, of which results.csv has only declared lengths",
    ("Tuning", None): "the runs of the sweep",
    ("Variants", "attention width"): "the product of heads and key width",
    ("Sources of uncertainty", "sample of the test examples"): "scores of single examples",
    ("Every pair", None): "shaded means, which the table of variants has",
    ("Ranking", "worse by at most"): "the intervals of all pairs of combinations",
}
"""Section and column, row or None for all, and what is not committed."""

Expected = list[float]
Scores = Mapping[int, float]


@dataclass(frozen=True)
class Finding:
    """What is wrong with a line of a report."""

    line: int
    problem: str


class Page:
    """A report: the text of ``report.md``, and the data beside it."""

    def __init__(self, folder: Path) -> None:
        self.text = unescaped((folder / "report.md").read_text(encoding="utf-8"))
        self.lines = self.text.splitlines()
        self.answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
        self.runs = pd.read_csv(folder / "results.csv")
        self.titles = dict(zip(self.runs["variant"], self.runs["title"].astype(str), strict=True))
        self.equal: dict[str, str] = {}
        self.all_titles = dict(self.titles)
        for remark in self.answer["remarks"]:
            for trained, title in self.titles.items():
                left, found, _ = remark["text"].partition(
                    f" and {title} are the same by construction"
                )
                if found:
                    self.equal[equal_slug(remark)] = trained
                    self.all_titles[equal_slug(remark)] = left
        self.baseline = str(self.runs["variant"].iloc[0])
        verdicts = self.runs[self.runs["verdict"] == "baseline"]
        if len(verdicts):
            self.baseline = str(verdicts["variant"].iloc[0])
        self.metric: str = self.answer["metric"]
        self.names = self._names()
        axes = self.runs.select_dtypes(exclude="float").astype(str)
        self.values = {value for column in axes for value in axes[column].unique()}
        fences = re.findall(r"^~~~$\n(.*?)^~~~$", self.text, re.DOTALL | re.MULTILINE)
        self.file = " ".join(" ".join(fences).split())

    def _names(self) -> list[str]:
        """Return the names that contain digits, longest first: variants, contrasts, axes and values."""
        names = {
            *self.all_titles.values(),
            *self.all_titles,
            self.answer["question"],
            self.answer["experiment"],
        }
        for contrast in self.answer["contrasts"]:
            names |= {contrast["name"], contrast["label"], *contrast["label"].split(" against ")}
        for column in self.runs.columns:
            if self.runs[column].dtype == object:
                names |= {
                    str(value)
                    for value in self.runs[column].dropna().unique()
                    if len(str(value)) < 60
                }
        for name in list(names):
            names |= {*name.split(" · "), *name.split(" + ")}
        return sorted(
            (name for name in names if re.search(r"[^\W\d_]", name) and re.search(r"\d", name)),
            key=len,
        )[::-1]

    def masked(self, line: str) -> str:
        """Return a line in which names, hashes, dates and quoted examples have no digits."""
        for name in self.names:
            line = line.replace(name, NAME * len(name))
        for pattern in (
            r"\b[0-9a-f]{12,64}\b",
            r"\d{4}-\d\d-\d\dT[\d:.]+Z",
            r"“[^”]*”",
            r"\]\([^)]*\)",
            r"`[^`]*`",
        ):
            line = re.sub(pattern, lambda found: NAME * len(found[0]), line)
        return line

    def slug_of(self, cell: str) -> str | None:
        """Return the variant that a cell begins with; its title can be followed by notes in brackets."""
        fitting = [
            slug
            for slug, title in self.all_titles.items()
            if cell == title or cell.startswith(title + " (")
        ]
        return max(fitting, key=lambda slug: len(self.all_titles[slug]), default=None)

    def scores(
        self, slug: str, metric: str, lengths: Sequence[int] | None = None
    ) -> dict[int, float]:
        """Return the scores of a variant by seed."""
        column = "/".join([metric, *(["-".join(map(str, lengths))] if lengths else [])])
        rows = self.runs[self.runs["variant"] == self.equal.get(slug, slug)]
        if column not in rows:
            return {}
        rows = rows[rows[column].notna()]
        return dict(zip(rows["seed"], rows[column], strict=True))

    def mean_of(self, slug: str, column: str) -> float:
        """Return the mean of a column over the seeds of a variant."""
        return float(np.mean([*self.scores(slug, column).values()] or [math.nan]))

    def weights(self, contrast: Mapping[str, Any]) -> dict[tuple[str, Any], float]:
        """Return the weight of each score of a contrast, with the trained variants."""
        pairs = [[self.equal.get(slug, slug) for slug in pair] for pair in contrast["pairs"]]
        return weights_of({**contrast, "pairs": pairs})

    def differences(self, contrast: Mapping[str, Any]) -> np.ndarray | None:
        """Return the differences of a contrast by seed, or None if results.csv lacks a score."""
        total = pd.Series(0.0, index=contrast["seeds"])
        for (slug, (metric, lengths)), weight in self.weights(contrast).items():
            own = self.scores(slug, metric, lengths)
            if not own:
                return None
            total = total + weight * pd.Series(own)
        return total.to_numpy()

    def setting_means(self, contrast: Mapping[str, Any]) -> Expected:
        """Return the mean difference of each setting of a contrast; NaN if results.csv lacks a score."""
        means = []
        for setting in settings_of(contrast):
            values = self.differences(setting)
            means.append(math.nan if values is None else float(values.mean()))
        return means

    def contrasts_before(self, text: str) -> list[Mapping[str, Any]]:
        """Return the tested contrasts with the label that ends last in the last clause of a text.

        Clauses end with a semicolon. All tested contrasts if the clause has no label.
        """
        tested = [own for own in self.answer["contrasts"] if own["difference"] is not None]
        clause = text.rpartition(";")[2]
        ends = {}
        for own in tested:
            label = own["label"]
            if label in clause:
                ends[label] = clause.rindex(label) + len(label), len(label)
        if not ends:
            return tested
        last = max(ends, key=lambda label: ends[label])
        return [own for own in tested if own["label"] == last]

    def num_same_by_construction(self, contrast: Mapping[str, Any]) -> int:
        """Return the number of settings that a contrast leaves out: both sides have the same runs.

        A setting compares two variants with the difference in slugs that the first pair of the contrast has.
        """
        trained_of = {slug: self.equal.get(slug, slug) for slug in self.all_titles}
        change = differing_parts(*contrast["pairs"][0])
        same = 0
        for left, right in itertools.permutations(trained_of, 2):
            if trained_of[left] == trained_of[right] and differing_parts(left, right) == change:
                same += 1
        return same

    def family_of(self, contrast: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the contrasts of different scores that are judged with a contrast, in its first family."""
        weights = self.weights(contrast)
        families = ("declared", "factors", "variants", "interactions", "added", "taken")
        for name in families:
            members = []
            seen: list[Mapping[Any, float]] = []
            for own in self.answer["contrasts"]:
                if own["family"] == name and own["difference"] is not None:
                    keys = [self.weights(own), {side: -w for side, w in self.weights(own).items()}]
                    if not any(key in seen for key in keys):
                        members.append(own)
                        seen.append(keys[0])
            opposite = {side: -weight for side, weight in weights.items()}
            if weights in seen or opposite in seen:
                return members
        raise KeyError(contrast["name"])

    def level_of(self, contrast: Mapping[str, Any]) -> float:
        """Return 1 minus the confidence of the interval of a contrast."""
        tested = [own for own in self.family_of(contrast) if own["direction"] != "identical"]
        return float(1 - (1 - ALPHA) ** (1 / len(tested)))

    def ratio_of(self, family: str) -> float:
        """Return the variance ratio of a family in the primary metric, NaN if results.csv lacks a score."""
        members = [
            own
            for own in self.answer["contrasts"]
            if own["family"] == family and own["difference"] is not None
        ]
        weights = [self.weights(own) for own in members]
        slugs = list(dict.fromkeys(self.runs["variant"]))
        scores = {slug: self.scores(slug, self.metric) for slug in slugs}
        table = table_of({slug: own for slug, own in scores.items() if own})
        by_slug = [{slug: weight for (slug, _), weight in own.items()} for own in weights]
        return variance_ratio(table, by_slug)


def settings_of(contrast: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a contrast for each setting that a contrast averages; a setting of an interaction has two pairs."""
    size = 2 if contrast["family"] == "interactions" else 1
    pairs = contrast["pairs"]
    return [
        {**contrast, "pairs": pairs[start : start + size]} for start in range(0, len(pairs), size)
    ]


def differing_parts(left: str, right: str) -> tuple[str, str]:
    """Return two texts without their common beginning and their common end.

    >>> differing_parts("heads-2-match-none", "heads-2-match-parameters")
    ('none', 'parameters')
    """
    start = num_shared(left, right)
    left, right = left[start:], right[start:]
    end = num_shared(left[::-1], right[::-1])
    return left[: len(left) - end], right[: len(right) - end]


def num_shared(left: str, right: str) -> int:
    """Return the length of the common beginning of two texts."""
    count = 0
    for ours, theirs in zip(left, right, strict=False):
        if ours != theirs:
            break
        count += 1
    return count


def unescaped(text: str) -> str:
    """Return Markdown without backslashes and HTML entities."""
    return html.unescape(re.sub(r"\\([_*<>\[\]|#~`-])", r"\1", text))


def value_of(number: str) -> float:
    """Return the value of a printed number."""
    return float(number.replace(",", "").replace("−", "-"))


def agrees(number: str, expected: float, scale: float = 1.0) -> bool:
    """Return whether a printed number is the expected one, rounded to its digits.

    >>> agrees("0.016", 0.0158), agrees("−0.42", -0.4249), agrees("51.6", 51648, 1000), agrees("0.013", 0.0158)
    (True, True, True, False)
    """
    mantissa, _, exponent = number.partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(value_of(number) * scale - expected) <= 0.5 * unit * scale * (1 + 1e-6) + 1e-12


def interval(values: Sequence[float], metric: str = "", level: float = 0.95) -> Expected:
    """Return mean and ends of the t-interval, clipped to the span of the metric."""
    numbers = np.array(values, dtype=float)
    if len(numbers) < 2:
        return [float(numbers.mean())]
    half = (
        stats.t.ppf((1 + level) / 2, len(numbers) - 1)
        * numbers.std(ddof=1)
        / math.sqrt(len(numbers))
    )
    low, high = (
        SPANS.get(metric.rpartition("/")[2], (0, math.inf)) if metric else (-math.inf, math.inf)
    )
    ends = np.clip([numbers.mean() - half, numbers.mean() + half], low, high)
    return [float(numbers.mean()), *map(float, ends)]


def hedges(values: np.ndarray) -> float:
    """Return the mean divided by the standard deviation, with Hedges' correction."""
    degrees = len(values) - 1
    logs = special.gammaln([degrees / 2, (degrees - 1) / 2])
    return float(
        math.exp(logs[0] - logs[1]) / math.sqrt(degrees / 2) * values.mean() / values.std(ddof=1)
    )


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


def no_values(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    return []


def listed(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    return [None] * len(found.groups())


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


def largest_possible(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    """Return the largest difference in an interval of a contrast without a shown difference that fits."""
    for own in page.answer["contrasts"]:
        is_open = own["direction"] == "no difference shown" and own["interval"]
        if is_open and agrees(found[1], own["largest_possible"]):
            return [own["largest_possible"]]
    return [math.nan]


FAMILIES = {
    "variants against the baseline": "variants",
    "factor contrasts": "factors",
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
    """Return the score of the reference point, and the best score that is not above it; other data have no source."""
    metric = next(column for name, column in METRICS.items() if f" {name})" in found[0])
    point = page.answer["reference_points"]["scores"][POINTS[found[1]]][metric]
    means = [
        page.mean_of(slug, metric)
        for slug in page.answer["scores"]
        if agrees(found[3], page.mean_of(slug, metric))
    ]
    is_other_data = "data." in found[0]
    return [None, None if is_other_data else point, max(means, default=math.nan)]


def interaction(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    for own in page.answer["contrasts"]:
        if (
            own["family"] == "interactions"
            and own["interval"]
            and agrees(found[1], own["difference"])
        ):
            return [own["difference"], own["interval"]["low"], own["interval"]["high"]]
    return [math.nan] * 3


def widened(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    """Return the number of widened variants, the largest widening in percent and the parameters of a variant."""
    cells = re.findall(r"\(d_ff (\d+), configured (\d+)\)", page.text)
    largest = max(100 * (int(wide) / int(configured) - 1) for wide, configured in cells)
    parameters = page.runs["parameters/non_embedding"]
    return [
        len(cells),
        largest,
        next((count for count in parameters if agrees(found[3], count)), math.nan),
    ]


def spread_ratios(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    """Return the standard deviations of the most variable variants as multiples of the pooled one of the others."""
    count = sum(group is not None for group in found.groups())
    variances = sorted(
        np.var([*page.scores(slug, page.metric).values()], ddof=1) for slug in page.titles
    )
    others = np.mean(variances[: len(variances) - count])
    ratios = [math.sqrt(own / others) for own in variances[len(variances) - count :]]
    printed = [group for group in found.groups() if group is not None]
    fitting = [
        next((ratio for ratio in ratios if agrees(text, ratio)), math.nan) for text in printed
    ]
    return [fitting.pop(0) if group is not None else None for group in found.groups()]


def effects_by_value(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    """Return the effects of a contrast of factors by value of another axis, of the contrast that fits."""
    for own in page.answer["contrasts"]:
        means = page.setting_means(own) if own["family"] == "factors" else []
        fitting = [
            next((mean for mean in means if agrees(found[group], mean)), math.nan)
            for group in (1, 3)
        ]
        if not any(map(math.isnan, fitting)):
            return [fitting[0], None, fitting[1], None]
    return [math.nan, None, math.nan, None]


def more_parameters(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    """Return the difference in parameters of a contrast that fits, in percent."""
    for own in page.answer["contrasts"]:
        left, right = (
            sum(page.mean_of(pair[side], "parameters/non_embedding") for pair in own["pairs"])
            for side in (0, 1)
        )
        if agrees(found[1], 100 * (left / right - 1)):
            return [100 * (left / right - 1)]
    return [math.nan]


def trained_steps(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    return [next((step for step in page.runs["step"] if agrees(found[1], step)), math.nan)]


def passes(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    trends = page.answer["training"]["variants"].values()
    counts = [own["passes"] for own in trends if own["verdict"] == "schedule ended"]
    return [min(counts), max(counts)]


def baseline_loss(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    """Return the baseline's loss; those of unigram and bigram models are facts of the data."""
    return [page.mean_of(page.baseline, "test/loss"), None, None]


POINTS = {
    "vocabulary upper bound": "vocabulary_bound",
    "nearest neighbour": "nearest_neighbour",
    "nearest-neighbour retrieval": "nearest_neighbour",
    "copied source": "source_copy",
    "most frequent target": "majority",
    "the most frequent target": "majority",
}
"""Field of ``answer.json`` by name of a reference point."""


def trend_count(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    return [
        sum(own["verdict"] == found[2] for own in page.answer["training"]["variants"].values()),
        None,
    ]


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
    lost, reused = (runs["state"] != "DONE").sum(), runs["reused_from"].notna().sum()
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


def seed_table(page: Page) -> np.ndarray:
    """Return the scores ``[variant, seed]`` of the variants with the data and size of the baseline."""
    columns = [name for name in ("data", "size") if name in page.runs]
    first = page.runs[page.runs["variant"] == page.baseline].iloc[0]
    same = page.runs[(page.runs[columns] == first[columns]).all(axis=1)]
    slugs = [slug for slug in dict.fromkeys(same["variant"]) if slug in page.answer["scores"]]
    return (
        pd.DataFrame({slug: page.scores(slug, page.metric) for slug in slugs}).dropna().to_numpy().T
    )


def families(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    tested = {own["family"] for own in page.answer["contrasts"] if own["difference"] is not None}
    return [len(tested), 5 * len(tested)]


SCOPES = {
    "baseline contrast": "variants",
    "factor contrast": "factors",
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
        and own["direction"] != "identical"
    ]
    keys: list[Mapping[Any, float]] = []
    for own in members:
        weights = page.weights(own)
        if weights not in keys and {side: -weight for side, weight in weights.items()} not in keys:
            keys.append(weights)
    return [len(keys)]


RULES: list[Rule] = [
    (
        rf"has a mean [\w -]+ of {N}, with a standard deviation of {N} over seeds"
        rf"(?:; pooled over all variants(?: of its data and size)?, it is {N})?",
        baseline_spread,
    ),
    (rf"The margin, the smallest difference that matters, is {N} ", margin),
    (rf"the margin of {N}", margin),
    (rf"With {N} seeds, a difference of {N} would be shown in 80 % of studies", power),
    (rf"could be up to {N}", largest_possible),
    (rf"is {N} times the residual variance \(([\w ]+)\); about 1 is", ratio),
    (
        rf"(?:over|and) {N} ((?:baseline|factor|declared) contrasts?|interactions?|(?:added|taken) changes?)",
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
        rf"{N} families, each with a wrong interval in at most 5 % .* in at most {N} %",
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
        rf"^Set-up: .*?{N} [kM](?: to {N} [kM])? parameters; {N}(?: (?:to|/) {N})? steps of .*; {N} seeds?\.$",
        setup,
    ),
    (rf"is {N} from the best possible", distance_from_best),
    (rf"^Not better than ([\w -]+) \({N} [\w ]+\): .* the best of them has {N}", not_better),
    (rf"- Interaction, [^:]*: .*: {N} \({N} to {N}\), ", interaction),
    (
        rf"match: parameters widens d_ff of {N} variants? by up to {N} %, to the {N} non-embedding parameters",
        widened,
    ),
    (rf"vary {N}(?:, {N})*(?: and {N})? times as much", spread_ratios),
    (rf"the variance of the differences is {N} times the residual", largest_ratio),
    (rf"depends on [\w.◆]+: {N} with ([^,;)]+), {N} with ([^,;)]+)", effects_by_value),
    (rf"{N} % non-embedding parameters", more_parameters),
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


def fitting(found: re.Match[str], candidates: Sequence[Expected]) -> Expected:
    """Return the first candidate that the groups of a match agree with, or else the first one."""
    for values in candidates:
        if all(map(agrees, found.groups(), values)):
            return values
    return candidates[0]


def settings_range(page: Page, before: str, found: re.Match[str]) -> Expected:
    """Return the smallest and the largest difference among the settings of the contrast that is named before."""
    means = [page.setting_means(own) for own in page.contrasts_before(before)]
    return fitting(found, [[min(own), max(own)] for own in means])


def excluded_settings(page: Page, before: str, found: re.Match[str]) -> Expected:
    """Return how many settings of the contrast that is named before are left out, and how many there are."""
    candidates = []
    for own in page.contrasts_before(before):
        excluded = page.num_same_by_construction(own)
        candidates.append([float(excluded), float(excluded + len(settings_of(own)))])
    return fitting(found, candidates)


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
    """Return the number of titles that do not end a text, which ends with the first ones; NaN if it does not.

    >>> num_unnamed(["a", "b", "c", "d", "e"], "the loss of a, b, c")
    2.0
    """
    for count in range(len(titles), 0, -1):
        if text.endswith(" " + ", ".join(titles[:count])):
            return float(len(titles) - count)
    return math.nan


NAMED_RULES: list[NamedRule] = [
    (rf"single settings range from {N} to {N}", settings_range),
    (rf"{N} of {N} settings same by construction", excluded_settings),
    (rf"and {N} more\b", further_variants),
]

FIXED = [
    r"with six to twelve seeds and losses of .* three seeds \d+ %, \d+ % and \d+ %",
    r"\bh2h \w+",
    r"fewer than 100 steps",
    r"- Best train\.lr: .*",
    r"on seeds [\d, ]+(?: with train\.epochs [\d.]+)?, which the comparison",
    r"The sweep may have missed .*",
    r"is the difference a2 − a1 with b2, minus the difference a2 − a1 with b1",
    r"margin: \{test/log_error: 0\.22\} for 1\.25",
    r"one for each of \d+ lengths",
    r"experiments/\S+\.yaml",
    r"On the [\d,]+ test sentences of",
    r"(?:LEAKY split|Leak)[^:]*: [\d.]+ % of the (?:test|validation) .*",
    r"Not better than a bigram model, .*\(test loss [\d.]+ nats\)",
    r"the learning rate (?:decays|decayed) \([^)]*\)",
    r"source also in training: [\d.]+ %",
    r"Pitfalls in \d+ of \d+ variants",
    r"^- \d+ data sets, which differ",
    r"\d+ to \d+ tokens",
    r"^\d+ more in the tables",
    r"95 % (?:t-)?intervals?",
    r"Intervals?: (?:simultaneous )?95 %",
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
    r"Grey bars contain 0",
    r"numbered from 0",
    r"a weight of 1\b",
    r"layer \d+, head \d+, one seed",
    r"“A: a2 − a1, by B: b2 − b1”.*",
    r"stack of \d+(?: to \d+)? runs",
    r"The maps of \d+ more variants",
    r"at most 0\.01 nats",
]
"""Parts of sentences whose digits are not measured: definitions, and numbers of heads and stacks."""


# Tables: the numbers that a cell must have, in their order.


def contrast_cells(
    page: Page, contrast: Mapping[str, Any], columns: Sequence[str], cells: Sequence[str]
) -> str:
    """Return the first column of a row that is not of this contrast, or an empty text."""
    for column, cell in zip(columns, cells, strict=True):
        expected = expected_of_contrast(page, contrast, column, cell)
        if expected is not None and not fits(page.masked(cell), expected):
            return f"{column} '{cell}', expected {shown(expected)}"
    return ""


def interval_cells(contrast: Mapping[str, Any]) -> Expected:
    """Return the difference of a contrast and the ends of its interval, if it has one."""
    if contrast["difference"] is None:
        return []
    ends = contrast["interval"]
    has_ends = ends is not None and contrast["direction"] != "identical"
    return [contrast["difference"], *([ends["low"], ends["high"]] if has_ends else [])]


def p_cells(p: float | None, cell: str) -> Sequence[float | None]:
    """Return the number of a cell with a p-value."""
    if p is None:
        return []
    return [0.001] if cell.startswith("<") and p < 0.0005 else [p]


def expected_of_contrast(
    page: Page, contrast: Mapping[str, Any], column: str, cell: str
) -> Sequence[float | None] | None:
    """Return the numbers of a cell in a row of a contrast; None for a cell of names."""
    tests = contrast["sensitivity"]
    if column == "difference":
        return interval_cells(contrast)
    if column == "p":
        return p_cells(contrast["adjusted_p"], cell)
    if column == "paired t p":
        return p_cells(tests["paired_p"], cell)
    if column == "sign-flip p":
        return p_cells(tests["sign_flip_p"], cell)
    if column == "seeds":
        return [len(contrast["seeds"])] if contrast["seeds"] else []
    values = page.differences(contrast)
    if column == "effect":
        return [hedges(values)] if values is not None and cell not in ("–", "") else []
    if column == "difference in validation loss":
        return gap_of(page, contrast)
    readers = {
        "settings": settings,
        "as expected": agreement,
        "in steps of the baseline": steps_of_gap,
        "training seeds": source,
        "test examples": source,
        "choice of the tuned value": source,
        "half the interval": halved,
    }
    if column not in readers:
        return None
    if readers[column] is source:
        return source(page, contrast, column)
    return readers[column](page, contrast, cell)


def source(page: Page, contrast: Mapping[str, Any], name: str) -> Sequence[float | None]:
    """Return the standard error of a source of variance, and its fraction of the squared width in percent."""
    level = page.level_of(contrast)
    total = half_width([(own["variance"], own["degrees"]) for own in contrast["sources"]], level)
    for own in contrast["sources"]:
        if own["name"] == name:
            part = half_width([(own["variance"], own["degrees"])], level)
            percent = 100 * (part / total) ** 2
            return [math.sqrt(own["variance"]), percent if percent >= 0.5 else 1.0]
    return []


def halved(page: Page, contrast: Mapping[str, Any], cell: str) -> Sequence[float | None]:
    """Return the numbers of a cell that halves the interval, if these do and one less does not."""
    level, n = page.level_of(contrast), len(contrast["seeds"])

    def width(seeds: float, factor: float) -> float:
        sources = []
        for own in contrast["sources"]:
            variance, degrees = own["variance"], own["degrees"]
            if own["name"] == "training seeds":
                variance, degrees = variance * n / seeds, degrees + seeds - n
            elif own["name"] == "test examples":
                variance, degrees = variance / factor, (degrees + 1) * factor - 1
            sources.append((variance, degrees))
        return half_width(sources, level)

    half = width(n, 1) / 2
    numbers = []
    for text, words in re.findall(
        rf"{N} ((?:times the )?seeds(?: and the test examples)?|times the test examples)", cell
    ):
        count = value_of(text)
        scaled = {
            "seeds": lambda number: width(number, 1),
            "times the test examples": lambda number: width(n, number),
            "times the seeds and the test examples": lambda number: width(n * number, number),
        }[words]
        numbers.append(
            count if scaled(count) <= half < scaled(count - 1) or count >= 1000 else math.nan
        )
    return numbers


def steps_of_gap(page: Page, contrast: Mapping[str, Any], cell: str) -> Sequence[float | None]:
    """Return the steps of the baseline that a difference in loss is worth; nothing for a cell without a number."""
    steps = {gap["contrast"]: gap["baseline_steps"] for gap in page.answer["training"]["gaps"]}
    return [steps_of(steps[contrast["name"]], page)] if NUMBER.search(cell) else []


def agreement(page: Page, contrast: Mapping[str, Any], cell: str) -> Sequence[float | None]:
    """Return the expected size where it is printed, and the steps."""
    by = [None] * len(re.findall(rf"(?:by (?:more|less) than|equal to within) {N}", cell))
    return [*by, *([None] if "steps" in cell else [])]


def settings(page: Page, contrast: Mapping[str, Any], cell: str) -> Expected:
    """Return the number of averaged settings, and the range of their differences."""
    count = len(settings_of(contrast))
    if "to" not in cell:
        return [count]
    means = page.setting_means(contrast)
    return [count, min(means), max(means)]


def gap_of(page: Page, contrast: Mapping[str, Any]) -> Expected:
    """Return the difference in validation loss of a contrast."""
    values = page.differences(
        {
            **contrast,
            "metric": "valid/loss",
            "against_metric": None,
            "lengths": None,
            "against_lengths": None,
        }
    )
    return [float(values.mean())] if values is not None else []


def variant_cell(page: Page, slug: str, column: str, cell: str) -> Sequence[float | None] | None:
    """Return the numbers of a cell in a row of a variant; None for a cell of names."""
    if cell in ("–", ""):
        return []
    if column in METRICS:
        return interval([*page.scores(slug, METRICS[column]).values()], METRICS[column])
    trend = page.answer["training"]["variants"].get(slug, {})
    simple: dict[str, Callable[[], Sequence[float | None]]] = {
        "seeds": lambda: [len(page.scores(slug, page.metric))],
        "against baseline": lambda: interval_cells(against_baseline(page, slug)),
        "p": lambda: p_cells(against_baseline(page, slug)["adjusted_p"], cell),
        "FLOPs per token": lambda: [page.mean_of(slug, "flops_per_token")],
        "memory, MB": lambda: [page.mean_of(slug, "system/peak_memory_mb")],
        "time, s": lambda: [page.mean_of(slug, "system/wall_seconds")],
        "validation loss at 80 % of the steps": lambda: [trend["loss"]],
        "fall until the end": lambda: [trend["fall"], 100 * trend["fall"] / trend["loss"]],
        "standard error over seeds": lambda: [trend["error"]],
        "passes over the data": lambda: [trend["passes"]],
    }
    if column in simple:
        return simple[column]()
    if column == "parameters":
        widened = [None, None] if "configured" in cell else []
        return [page.mean_of(slug, "parameters/total"), *widened]
    if column == "tokens/s":
        stack = [None] * len(NUMBER.findall(cell.partition("stack of")[2].partition(")")[0]))
        mfu = [100 * page.mean_of(slug, "system/mfu")] * ("MFU" in cell)
        return [page.mean_of(slug, "system/tokens_per_second"), *stack, *mfu]
    return None


def against_baseline(page: Page, slug: str) -> Mapping[str, Any]:
    """Return the contrast of a variant with the baseline of its data and size."""
    for own in page.answer["contrasts"]:
        if own["family"] == "variants" and own["pairs"][0][0] == slug:
            return own
    raise KeyError(slug)


def transfers(page: Page) -> list[Expected]:
    """Return the rows of order transfer, from means and paired t-tests of all pairs of variants at successive sizes."""
    runs = page.runs
    axes = [name for name in ("attention", "positional", "feed_forward") if name in runs]
    sizes = list(dict.fromkeys(runs["size"]))
    rows = []
    for small, large in itertools.pairwise(sizes):
        tables = []
        for size in (small, large):
            own = runs[runs["size"] == size]
            tables.append(own.pivot_table(index=axes, columns="seed", values=page.metric))
        both = [table.loc[tables[0].index].to_numpy() for table in tables]
        rows.append(transfer(both))
    return rows


def transfer(both: Sequence[np.ndarray]) -> Expected:
    """Return the cells of a row of order transfer, of scores ``[variant, seed]`` at two sizes."""
    count, seeds = both[0].shape
    pairs = list(itertools.combinations(range(count), 2))
    chosen = np.random.default_rng(0).integers(seeds, size=(2000, seeds))
    chosen = chosen[(chosen != chosen[:, :1]).any(axis=1)]
    order = verdict = detected = opposite = 0
    orders, verdicts = np.zeros(len(chosen)), np.zeros(len(chosen))
    for a, b in pairs:
        signs, found, signs_drawn, found_drawn = [], [], [], []
        for scores in both:
            values = scores[a] - scores[b]
            signs.append(np.sign(values.mean()))
            found.append(np.sign(values.mean()) * (stats.ttest_1samp(values, 0).pvalue <= 0.05))
            drawn = values[chosen]
            error = drawn.std(axis=1, ddof=1) / math.sqrt(seeds - 1)
            signs_drawn.append(np.sign(drawn.mean(axis=1)))
            is_found = np.abs(drawn.mean(axis=1)) >= stats.t.ppf(0.975, seeds - 1) * error
            found_drawn.append(signs_drawn[-1] * is_found)
        order += signs[0] == signs[1]
        verdict += found[0] == found[1]
        detected += found[0] * found[1] > 0
        opposite += found[0] * found[1] < 0
        orders += signs_drawn[0] == signs_drawn[1]
        verdicts += found_drawn[0] == found_drawn[1]
    ranges = [100 * np.quantile(drawn / len(pairs), [0.025, 0.975]) for drawn in (orders, verdicts)]
    return [
        count,
        order,
        len(pairs),
        *ranges[0],
        verdict,
        len(pairs),
        *ranges[1],
        detected,
        opposite,
    ]


def fits(cell: str, expected: Sequence[float | None]) -> bool:
    """Return whether a cell has these numbers in this order; None is any number."""
    found = NUMBER.findall(cell)
    if len(found) != len(expected):
        return False
    return all(
        value is None or agrees(number, value, SCALES[unit.strip()])
        for (number, unit), value in zip(found, expected, strict=True)
    )


def shown(expected: Sequence[float | None]) -> str:
    return (
        ", ".join("any" if value is None else f"{value:.6g}" for value in expected) or "no number"
    )


class Checker:
    """The check of a report, line by line; ``kinds`` counts the numbers of each kind."""

    def __init__(self, folder: Path) -> None:
        self.page = Page(folder)
        self.kinds: Counter[str] = Counter()
        self.findings: list[Finding] = []
        self.section = ""
        self.columns: list[str] = []

    def check(self) -> list[Finding]:
        """Return what is wrong with the numbers of the report."""
        in_code = False
        for number, line in enumerate(self.page.lines, start=1):
            if line.startswith("~~~"):
                in_code = not in_code
            elif in_code or self.is_description(line):
                self.kinds["listed"] += len(NUMBER.findall(line))
            elif line.startswith("#"):
                self.section = re.sub(r"^#+ ", "", line)
                self.sentence(number, re.sub(r"^#+ ", "", line))
            elif line.startswith("|"):
                self.row(number, line)
            else:
                self.columns = []
                self.sentence(number, line)
        return self.findings

    def is_description(self, line: str) -> bool:
        """Return whether a line is text of the experiment file, which the report repeats at its end."""
        words = " ".join(line.split()).strip("*")
        return len(words) > 10 and words in self.page.file

    def sentence(self, number: int, line: str) -> None:
        """Check the numbers of a line outside of tables."""
        if self.section in CONFIGURATION:
            self.kinds["listed"] += len(NUMBER.findall(line))
            return
        masked = self.page.masked(line)
        claimed = [False] * len(masked)
        for pattern in FIXED:
            for found in re.finditer(pattern, masked):
                self.claim(claimed, found, "listed")
        for pattern, values in RULES:
            for found in re.finditer(pattern, masked):
                self.compare(number, found, values(self.page, found))
                self.claim(claimed, found, "recomputed")
        for pattern, values_after in NAMED_RULES:
            for found in re.finditer(pattern, masked):
                before = line[: found.start()]
                self.compare(number, found, values_after(self.page, before, found))
                self.claim(claimed, found, "recomputed")
        for found in NUMBER.finditer(masked):
            if not all(claimed[found.start() : found.end()]):
                around = line[max(0, found.start() - 40) : found.end() + 30]
                self.findings.append(Finding(number, f"no source for {found[0]} in '{around}'"))

    def claim(self, claimed: list[bool], found: re.Match[str], kind: str) -> None:
        self.kinds[kind] += len(NUMBER.findall(found[0]))
        claimed[found.start() : found.end()] = [True] * (found.end() - found.start())

    def compare(self, number: int, found: re.Match[str], values: Sequence[float | None]) -> None:
        for printed, value in zip(found.groups(), values, strict=False):
            if printed is not None and value is not None and not agrees(printed, value):
                self.findings.append(
                    Finding(number, f"{printed}, expected {value:.6g}, in '{found[0]}'")
                )

    def row(self, number: int, line: str) -> None:
        """Check the cells of a row of a table."""
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not self.columns:
            self.columns = cells
            self.table_rows = 0
            return
        if set(line) <= set("|-: "):
            return
        self.table_rows += 1
        if self.section in CONFIGURATION | EXAMPLES:
            self.kinds["listed"] += len(NUMBER.findall(line))
            return
        if (self.section, None) in NO_SOURCE:
            self.kinds["without a source"] += len(NUMBER.findall(line))
            return
        cells = [cell.replace("*", "") for cell in cells]
        problem = self.problem(number, cells)
        self.kinds["recomputed"] += len(NUMBER.findall(line))
        if problem:
            self.findings.append(Finding(number, f"{self.section}, {cells[0]}: {problem}"))

    def problem(self, number: int, cells: Sequence[str]) -> str:
        """Return what is wrong with the numbers of a row, or an empty text."""
        if self.section == "Order transfer":
            expected = transfers(self.page)[self.table_rows - 1]
            text = " ".join(cells[1:]).replace("→", "")
            return "" if fits(text, expected) else f"expected {shown(expected)}"
        if self.section == "Sources of uncertainty":
            return self.source_problem(cells)
        if self.columns[0] in ("variant", ""):
            return self.variant_problem(number, cells)
        return self.contrast_problem(number, cells)

    def variant_problem(self, number: int, cells: Sequence[str]) -> str:
        page = self.page
        slug = page.slug_of(cells[0])
        if slug is None:
            return self.point_problem(cells)
        self.sentence(number, cells[0])
        for column, cell in zip(self.columns[1:], cells[1:], strict=True):
            if (self.section, column) in NO_SOURCE:
                self.kinds["without a source"] += 1
                continue
            expected = variant_cell(page, slug, column, cell)
            if expected is None:
                self.sentence(number, cell)
            elif not fits(page.masked(cell), expected):
                return f"{column} '{cell}', expected {shown(expected)}"
        return ""

    def name_cells(self, number: int, cells: Sequence[str]) -> None:
        """Check the digits in the cells of names of a contrast's row: values of an axis, verdicts with notes."""
        for column, cell in zip(self.columns[1:], cells[1:], strict=True):
            if column == "expected":  # text of the experiment file
                self.kinds["listed"] += len(NUMBER.findall(cell))
            is_value = (
                column in ("value", "against") and cell.partition(" (")[0] in self.page.values
            )
            if column in ("value", "against", "verdict", "change", "in") and not is_value:
                self.sentence(number, cell)

    def point_problem(self, cells: Sequence[str]) -> str:
        """Return what is wrong with a row of reference points."""
        if cells[0] not in POINTS:
            return "no source"
        if self.section != "Reference points":
            self.kinds["without a source"] += len(cells) - 1
            return ""
        scores = self.page.answer["reference_points"]["scores"][POINTS[cells[0]]]
        for column, cell in zip(self.columns[1:], cells[1:], strict=True):
            if not fits(cell, [scores[METRICS[column]]]):
                return f"{column} '{cell}', expected {scores[METRICS[column]]}"
        return ""

    def source_problem(self, cells: Sequence[str]) -> str:
        table = seed_table(self.page)
        if cells[0] == "training seed":
            expected = [math.sqrt(table.var(axis=1, ddof=1).mean())]
        elif cells[0].startswith("true means"):
            residual = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
            squares = (residual**2).sum() / (
                (table.shape[0] - 1) * (table.shape[1] - 1) or math.nan
            )
            expected = (
                [math.sqrt(max(0.0, table.mean(axis=1).var(ddof=1) - squares / table.shape[1]))]
                if len(table) > 1
                else []
            )
        else:
            self.kinds["without a source"] += len(NUMBER.findall(cells[1]))
            return ""
        if not NUMBER.search(cells[1]):
            return ""
        return "" if fits(cells[1], expected) else f"'{cells[1]}', expected {shown(expected)}"

    def contrast_problem(self, number: int, cells: Sequence[str]) -> str:
        """Return why the row is not that of a contrast, or an empty text."""
        page, name = self.page, cells[0]
        self.sentence(number, name)
        self.name_cells(number, cells)
        tested_columns = {"difference", "training seeds", "difference in validation loss"}
        values = [
            cell
            for column, cell in zip(self.columns, cells, strict=True)
            if column in tested_columns or not tested_columns.intersection(self.columns)
        ]
        if not any(NUMBER.search(cell) for cell in values):
            return ""
        tested = [own for own in page.answer["contrasts"] if own["difference"] is not None]
        named = [own for own in tested if name.startswith((own["label"], own["name"]))]
        candidates = named or tested
        columns, rest = self.columns[1:], cells[1:]
        kept = [
            index for index, column in enumerate(columns) if (self.section, column) not in NO_SOURCE
        ]
        problems = [
            contrast_cells(page, own, [columns[i] for i in kept], [rest[i] for i in kept])
            for own in candidates
        ]
        return "" if "" in problems else problems[0]


def sentence_findings(page: Page) -> list[Finding]:
    """Return the sentences of ``answer.json`` that the report does not have."""
    answer = page.answer
    sentences = [
        answer["answer"],
        answer["setup"],
        *(remark["text"] for remark in answer["remarks"]),
    ]
    words = " ".join(page.text.replace("**", "").split())
    missing = [text for text in sentences if " ".join(unescaped(text).split()) not in words]
    return [Finding(0, f"answer.json has another sentence: {text}") for text in missing]


def checksum_findings(folder: Path) -> list[Finding]:
    """Return the files of a report that do not have the checksum of ``SHA256SUMS``, and those without one."""
    sums = folder / "SHA256SUMS"
    if not sums.is_file():
        return [Finding(0, "SHA256SUMS is missing; h2h report writes it")]
    recorded = dict(
        line.split("  ", 1)[::-1] for line in sums.read_text(encoding="utf-8").splitlines()
    )
    findings = []
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    present = {file.relative_to(folder).as_posix(): file for file in files}
    for name in sorted({*recorded, *present} - {"SHA256SUMS", "index.html", ".headtohead.jsonl"}):
        actual = (
            hashlib.sha256(present[name].read_bytes()).hexdigest() if name in present else "missing"
        )
        if recorded.get(name) != actual:
            findings.append(
                Finding(0, f"{name} is not the file that was generated: edited by hand?")
            )
    return findings


def main(folders: Sequence[str]) -> int:
    """Print the numbers of each report by kind, and everything that is wrong."""
    wrong = 0
    for folder in folders:
        findings = checksum_findings(Path(folder))
        reason = reason_of(Path(folder))
        if reason:
            print(f"{folder}: withdrawn: {reason}")
            wrong += shown_findings(folder, findings)
            continue
        checker = Checker(Path(folder))
        findings = [*checker.check(), *sentence_findings(checker.page), *findings]
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(checker.kinds.items()))
        print(f"{folder}: {kinds}; {len(findings)} wrong")
        wrong += shown_findings(folder, findings)
    return int(wrong > 0)


def shown_findings(folder: str, findings: Sequence[Finding]) -> int:
    """Print what is wrong with a report and return its number."""
    for finding in findings:
        print(f"  {folder}/report.md:{finding.line}: {finding.problem}")
    return len(findings)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help="folder of a report")
    raise SystemExit(main(parser.parse_args().folders))
