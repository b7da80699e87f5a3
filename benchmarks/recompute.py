"""Recompute the numbers and verdicts of a report's ``answer.json`` from its ``results.csv``, with independent code.

    python benchmarks/recompute.py reports/quickstart [reports/...]

Nothing of headtohead is imported: the interval of a difference and the rule of collapsed runs are written here a second
time, from docs/concepts/statistics.md, with `scipy.stats` and loops. The variances of examples and of tuned values are
those of ``answer.json``, because their data are not committed. Exit code 1 if a number differs. Studies with looks, and
families with a score that `results.csv` does not have, are counted as not recomputed. Reports in
``reports/withdrawn.yaml`` are named with their reason and not recomputed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import optimize, special, stats
from withdrawn import reason_of

HIGHER = ("exact_match", "bleu", "chrf", "accuracy")
"""Ends of the names of metrics whose larger values are better; of all others, smaller ones are."""

ALPHA = 0.05
Scores = Mapping[str, Mapping[int, float]]
Weights = Mapping[str, float]


def table_of(scores: Scores) -> pd.DataFrame:
    """Return the scores ``[seed, variant]``, NaN where a variant has no run that counts."""
    return pd.DataFrame(scores).sort_index()


def different(table: pd.DataFrame) -> pd.DataFrame:
    """Return the columns without those that repeat another one."""
    return table.loc[:, ~table.T.duplicated()]


def smallest_larger_variance(table: pd.DataFrame) -> float:
    """Return the smallest variance over seeds that is significantly larger than those of the others; else infinity."""
    scores = different(table)
    variances = scores.var()
    degrees = scores.count() - 1
    ascending = variances.sort_values().index
    for k in range(max(2, math.ceil(len(ascending) / 2)), len(ascending)):
        following = ascending[k]
        smaller = ascending[:k]
        smaller_degrees = degrees[smaller].sum()
        common = (variances * degrees)[smaller].sum() / smaller_degrees
        if common <= 1e-20:
            continue
        p = stats.f.sf(variances[following] / common, degrees[following], smaller_degrees)
        if p <= 0.07 / len(ascending):
            return float(variances[following])
    return math.inf


def common_variance(table: pd.DataFrame, limit: float) -> tuple[float, float, float]:
    """Return residual variance, its degrees of freedom, and prior degrees, of the variants with a variance below.

    Effects of variants and seeds are fitted by least squares. All are NaN for fewer than two variants.
    """
    kept = different(table)
    kept = kept.loc[:, kept.var() < limit]
    kept = kept[kept.count(axis=1) > 1]
    if kept.shape[1] < 2:
        return math.nan, math.nan, math.nan
    rows = kept.stack().dropna()
    seeds = pd.get_dummies(rows.index.get_level_values(0), dtype=float)
    variants = pd.get_dummies(rows.index.get_level_values(1), dtype=float)
    design = np.hstack([seeds, variants])
    effects, _, rank, _ = np.linalg.lstsq(design, rows.to_numpy())
    squares = ((rows - design @ effects) ** 2).groupby(level=1).sum()
    residual = float(squares.sum() / (len(rows) - rank))
    return residual, len(rows) - int(rank), prior_degrees(squares, kept.count()[squares.index] - 1)


def prior_degrees(squares: pd.Series, degrees: pd.Series) -> float:
    """Return the prior degrees of freedom of the variances of variants, at most 10."""
    variances = squares / degrees * len(squares) / (len(squares) - 1)
    positive = variances > 0
    halves = degrees[positive] / 2
    if len(halves) < 2:
        return 10.0
    logs = np.log(variances[positive].clip(lower=1e-5 * variances[positive].median()))
    expected = special.digamma(halves) - np.log(halves)
    excess = (logs - expected).var(ddof=1) - special.polygamma(1, halves).mean()
    if excess <= 0:
        return 10.0
    half = optimize.brentq(lambda y: special.polygamma(1, y) - excess, 1e-6, 1e6)
    return min(10.0, 2 * half)


def values_of(table: pd.DataFrame, weights: Weights) -> Any:
    """Return a weighted sum of scores in each seed in which all of them count."""
    return table[[*weights]].dropna().to_numpy() @ np.array([*weights.values()])


def difference_of(weights: Weights) -> frozenset[Any]:
    """Return a key that the contrasts of the same difference share, also with exchanged sides."""
    sides = [frozenset((slug, sign * w) for slug, w in weights.items()) for sign in (1, -1)]
    return frozenset(sides)


def moderated_tests(table: pd.DataFrame, family: Sequence[Weights]) -> list[dict[str, Any]]:
    """Return the variances over seeds of weighted sums of the variants' scores ``[seed, variant]``, as a family."""
    return tests_in_blocks([table], family)


def tests_in_blocks(
    blocks: Sequence[pd.DataFrame], family: Sequence[Weights]
) -> list[dict[str, Any]]:
    """Return the variances over seeds of weighted sums of scores from several tables, such as one for each size.

    The common variance of each table is that of its variants alone. All sums of the family have the squared weights of
    its first sum in every table.
    """
    table = pd.concat(blocks, axis=1)
    found = [paired_test(values_of(table, weights)) for weights in family]
    limits = pd.Series(dtype=float)
    parts = []
    for block in blocks:
        limit = smallest_larger_variance(block)
        limits = pd.concat([limits, pd.Series(limit, index=block.columns)])
        own = {slug: weight for slug, weight in family[0].items() if slug in block}
        parts.append((squared(own), *common_variance(block, limit)))
    residual, degrees, prior = combined_variance([part for part in parts if part[0]])
    if math.isnan(residual):
        return found
    moderated = []
    own_of = {}  # contrasts of the same difference count once
    for index, weights in enumerate(family):
        own = found[index]
        is_pooled = (table.var()[[*weights]] < limits[[*weights]]).all()
        if own["variance"] and is_pooled:
            moderated.append(index)
            own_of[difference_of(weights)] = (own["own"] / squared(weights), own["n"] - 1)
    if not moderated:
        return found
    common = float(np.mean([variance for variance, _ in own_of.values()]))
    if common > residual:
        degrees = min(degrees, sum(own_degrees for _, own_degrees in own_of.values()))
    common = max(residual, common)
    for index in moderated:
        own = found[index]
        n = own["n"]
        sums = prior * squared(family[index]) * common + (n - 1) * own["own"]
        variance = sums / (prior + n - 1)
        left = max(n - 1, min(prior + n - 1, degrees))
        found[index] = own | {"variance": variance / n, "degrees": left}
    return found


def combined_variance(
    parts: Sequence[tuple[float, float, float, float]],
) -> tuple[float, float, float]:
    """Return residual variance, degrees and prior degrees over tables: the weighted mean, Satterthwaite's, the least.

    Args:
        parts: The sum of the squared weights in each table, with its `common_variance`.
    """
    weights, residuals, degrees, priors = np.array(parts).T
    if len(parts) == 1:
        return residuals[0], degrees[0], priors[0]
    variances = weights * residuals
    of_all = variances.sum() ** 2 / (variances**2 / degrees).sum()
    return variances.sum() / weights.sum(), of_all, priors.min()


def squared(weights: Weights) -> float:
    """Return the sum of squared weights."""
    return sum(weight**2 for weight in weights.values())


def variance_ratio(table: pd.DataFrame, family: Sequence[Weights]) -> float:
    """Return the mean variance of contrasts per squared weight, divided by the residual variance of the variants."""
    limit = smallest_larger_variance(table)
    own_of = {}
    for weights in family:
        values = values_of(table, weights)
        if np.ptp(values) > 1e-12 and table.var()[[*weights]].max() < limit:
            own_of[difference_of(weights)] = values.var(ddof=1) / squared(weights)
    residual, _, _ = common_variance(table, limit)
    return float(np.mean([*own_of.values()]) / residual) if own_of else math.nan


def paired_test(differences: Any) -> dict[str, Any]:
    """Return mean, variance of the mean, paired t-test and sign-flip test of differences by seed."""
    n = len(differences)
    mean, own = differences.mean(), differences.var(ddof=1)
    flips = [abs(np.dot(signs, differences)) for signs in itertools.product((-1, 1), repeat=n)]
    flip_p = np.mean([flip >= abs(differences.sum()) * (1 - 1e-9) - 1e-15 for flip in flips])
    found: dict[str, Any] = {"difference": mean, "sign_flip_p": flip_p, "degrees": n - 1}
    found |= {"n": n, "own": own}
    if np.ptp(differences) < 1e-12:
        return found | {"variance": 0.0, "paired_p": flip_p}
    paired_p = stats.ttest_1samp(differences, 0).pvalue
    return found | {"variance": own / n, "paired_p": paired_p}


def half_width(sources: Sequence[tuple[float, float]], level: float) -> float:
    """Return the half width of the interval of confidence 1 - ``level``, of sources (variance, degrees)."""
    return math.sqrt(sum(stats.t.isf(level / 2, degrees) ** 2 * v for v, degrees in sources))


def p_of_zero(mean: float, sources: Sequence[tuple[float, float]]) -> float:
    """Return the level at which the interval ends at 0."""
    varied = [(v, degrees) for v, degrees in sources if v > 0]
    if len(varied) == 1:
        ((v, degrees),) = varied
        return float(2 * stats.t.sf(abs(mean) / math.sqrt(v), degrees))
    if not varied:
        return 0.0 if mean else 1.0
    if half_width(varied, 1 - 1e-9) > abs(mean):
        return 1.0
    log_p = optimize.brentq(
        lambda log: half_width(varied, math.exp(log)) - abs(mean), math.log(1e-290), -1e-9
    )
    return math.exp(log_p)


def words(low: float, high: float, margin: float, better: Sequence[str]) -> tuple[str, str | None]:
    """Return direction and size of an interval; ``better`` has the words for larger and smaller values."""
    is_inside = bool(margin) and -margin < low and high < margin
    is_outside = bool(margin) and (low >= margin or high <= -margin)
    if low <= 0 <= high:
        return ("equivalent" if is_inside else "no difference shown"), None
    size = None
    if is_outside:
        size = "by more than the margin"
    elif is_inside:
        size = "by less than the margin"
    return better[0 if low > 0 else 1], size


def weights_of(contrast: Mapping[str, Any], sign: int = 1) -> dict[tuple[str, Any], float]:
    """Return the weight of each score of a difference, or with ``sign`` -1 of the one with exchanged sides."""
    own = contrast["metric"], tuple(contrast.get("lengths") or ())
    other = (
        contrast.get("against_metric") or own[0],
        tuple(contrast.get("against_lengths") or own[1]),
    )
    settings = len(contrast["pairs"]) // (2 if contrast["family"] == "interactions" else 1)
    weights: dict[tuple[str, Any], float] = {}
    for left, right in contrast["pairs"]:
        weights[left, own] = weights.get((left, own), 0) + sign / settings
        weights[right, other] = weights.get((right, other), 0) - sign / settings
    return {side: weight for side, weight in weights.items() if weight}


OPPOSITES = {"better": "worse", "worse": "better", "larger": "smaller", "smaller": "larger"}


def exchanged(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of the difference with exchanged sides."""
    ends = {"difference": "difference", "low": "high", "high": "low"}
    opposite = {name: -numbers[ends[name]] for name in ends}
    direction = OPPOSITES.get(numbers["direction"], numbers["direction"])
    return {**numbers, **opposite, "direction": direction}


def tests_of_family(
    scores_of: Callable[..., Scores], family: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return mean and variance over seeds of the contrasts of a family; those of the same scores share a variance.

    Args:
        scores_of: Returns the scores in a metric, for given source lengths, of variants with the size of another one.
        family: The contrasts as printed.
    """
    tests: dict[int, dict[str, Any]] = {}
    groups: dict[Any, list[int]] = {}
    tables: dict[Any, pd.DataFrame] = {}
    for index, contrast in enumerate(family):
        weights = weights_of(contrast)
        own, *others = {score: None for _, score in weights}
        if others:
            sides = {side: scores_of(*side[1])[side[0]] for side in weights}
            tests[index] = paired_test(values_of(pd.DataFrame(sides), weights))
            continue
        scores = scores_of(*own, next(iter(weights))[0])
        key = own, tuple(scores)
        groups.setdefault(key, []).append(index)
        tables[key] = table_of(scores)
    for key, indices in groups.items():
        by_slug = [
            {slug: weight for (slug, _), weight in weights_of(family[index]).items()}
            for index in indices
        ]
        tests |= zip(indices, moderated_tests(tables[key], by_slug), strict=True)
    return [tests[index] for index in range(len(family))]


def family_numbers(
    scores_of: Callable[..., Scores], family: Sequence[Mapping[str, Any]], margins: Sequence[float]
) -> list[dict[str, Any]]:
    """Return the recomputed fields of the contrasts of a family, of which contrasts of the same scores count once.

    Args:
        scores_of: As in `tests_of_family`.
        family: The contrasts as printed.
        margins: The margin of each contrast, or 0.
    """
    tests = tests_of_family(scores_of, family)
    keys = [{frozenset(weights_of(found, sign).items()) for sign in (1, -1)} for found in family]
    first = [keys.index(key) for key in keys]
    counted = [
        index
        for index in range(len(family))
        if first[index] == index
        and (tests[index]["variance"] or abs(tests[index]["difference"]) > 1e-12)
    ]
    k = max(len(counted), 1)
    level = 1 - (1 - ALPHA) ** (1 / k)
    results = []
    for contrast, found, margin in zip(family, tests, margins, strict=True):
        others = [(own["variance"], own["degrees"]) for own in contrast["sources"][1:]]
        sources = [(found["variance"], found["degrees"]), *others]
        p = p_of_zero(found["difference"], sources)
        if not found["variance"]:
            p = max(p, found["sign_flip_p"])
        half = half_width(sources, level)
        low, high = found["difference"] - half, found["difference"] + half
        direction, size = words(low, high, margin, better_words(contrast))
        results.append(
            {
                "difference": found["difference"],
                "p": p,
                "paired_p": found["paired_p"],
                "sign_flip_p": found["sign_flip_p"],
                "adjusted_p": 1 - (1 - p) ** k,
                "low": low,
                "high": high,
                "largest_possible": max(abs(low), abs(high)),
                "direction": direction,
                "size": size,
            }
        )
    return results


def better_words(contrast: Mapping[str, Any]) -> tuple[str, str]:
    """Return the words for a positive and a negative difference of a contrast."""
    is_no_quality = contrast["metric"].startswith("heads/") or contrast.get("against_metric")
    if is_no_quality or contrast["family"] == "interactions":
        return "larger", "smaller"
    return ("better", "worse") if contrast["metric"].endswith(HIGHER) else ("worse", "better")


def equal_slug(note: Mapping[str, Any]) -> str:
    """Return the variant of a remark on equality by construction."""
    return str(note["variants"][0])


def limits_of(values: Mapping[str, Any], most: float) -> dict[str, float]:
    """Return each variant's median plus ``most`` median absolute deviations, more of them with fewer than six seeds."""
    deviations = {slug: abs(row - np.median(row)) for slug, row in values.items()}
    of_all = np.median(np.concatenate([*deviations.values()]))
    limits = {}
    for slug, row in values.items():
        factor = most * max(6 / len(row), 1)
        limits[slug] = np.median(row) + factor * max(np.median(deviations[slug]), of_all)
    return limits


def is_collapsed(runs: pd.DataFrame) -> pd.Series:
    """Return whether each run collapsed, by its validation loss, compared with the runs on the same data."""
    flags = pd.Series(False, index=runs.index)
    if "valid/loss" not in runs:
        return flags
    done = runs[runs["valid/loss"].notna()]
    for _, on_data in done.groupby(size_of(done) + done["data_hash"].astype(str)):
        losses = {slug: rows["valid/loss"].to_numpy() for slug, rows in on_data.groupby("variant")}
        limits = limits_of(losses, 25)
        logs = limits_of({slug: np.log(row) for slug, row in losses.items()}, 10)
        worst = {}
        for slug, row in losses.items():
            limits[slug] = max(limits[slug], math.exp(min(logs[slug], 700)))
            worst[slug] = max(row[row <= limits[slug]], default=-math.inf)
        for index, run in on_data.iterrows():
            others = [loss for slug, loss in worst.items() if slug != run["variant"]]
            above_others = 1.1 * max(others, default=math.inf)
            flags[index] = run["valid/loss"] > max(limits[run["variant"]], above_others)
    return flags


def size_of(runs: pd.DataFrame) -> pd.Series:
    """Return a text of the axes ``data`` and ``size`` of each run."""
    return runs.reindex(columns=["data", "size"]).astype(str).sum(axis=1)


class Results:
    """The scores of a report's ``results.csv``; collapsed runs do not count in contrasts."""

    def __init__(self, runs: pd.DataFrame) -> None:
        self.runs = runs
        self.size = size_of(runs)
        self.collapsed = is_collapsed(runs)

    def scores(self, metric: str, *, all_runs: bool = False) -> Scores:
        """Return the scores in a metric by variant and seed."""
        return self._scores(metric, self.runs if all_runs else self.runs[~self.collapsed])

    def scores_like(
        self, metric: str, lengths: Sequence[int] | None = None, like: str | None = None
    ) -> Scores:
        """Return the scores in a metric, for given source lengths, of variants with the size of another one."""
        column = metric
        if lengths:
            column = f"{metric}/{lengths[0]}-{lengths[1]}"
        counts = ~self.collapsed
        if like is not None:
            size = self.size[self.runs["variant"] == like].iloc[0]
            counts &= self.size == size
        return self._scores(column, self.runs[counts])

    @staticmethod
    def _scores(column: str, runs: pd.DataFrame) -> Scores:
        if column not in runs:
            return {}
        done = runs[runs[column].notna()]
        scores = {}
        for slug, rows in done.groupby("variant"):
            scores[str(slug)] = dict(zip(rows["seed"], rows[column], strict=True))
        return scores

    def collapse(self, slug: str, metric: str) -> dict[str, float]:
        """Return number and rate of the collapsed runs of a variant, and its mean with and without them."""
        is_baseline = self.runs["verdict"] == "baseline"
        has_loss = self.runs["valid/loss"].notna()
        of_variant = self.runs["variant"] == slug
        count, runs = self.collapsed[of_variant].sum(), (of_variant & has_loss).sum()
        other = self.collapsed[is_baseline].sum()
        others = (is_baseline & has_loss).sum()
        interval = stats.binomtest(int(count), int(runs)).proportion_ci(1 - ALPHA, "exact")
        table = [[count, runs - count], [other, others - other]]
        return {
            "collapsed": count,
            "runs": runs,
            "p": stats.fisher_exact(table).pvalue,
            "low": interval.low,
            "high": interval.high,
            "mean of all runs": np.mean([*self.scores(metric, all_runs=True)[slug].values()]),
            "mean without": np.mean([*self.scores(metric)[slug].values()]),
        }


def compared(folder: Path) -> Iterator[tuple[str, Any, Any]]:
    """Yield a name, the printed and the recomputed value of every number of a report; a name alone is skipped."""
    answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    results = Results(pd.read_csv(folder / "results.csv", dtype={"variant": str, "title": str}))
    trained = trained_of(answer["remarks"], results.runs)
    scores = results.scores(answer["metric"], all_runs=True)
    for slug, printed in answer["scores"].items():
        own = scores.get(trained.get(slug, slug), {})
        yield f"mean of {slug}", printed if own else None, np.mean([*own.values()] or [math.nan])
    yield from compared_collapses(answer, results)
    yield from compared_contrasts(answer, results, trained)


def trained_of(remarks: Sequence[Mapping[str, Any]], runs: pd.DataFrame) -> dict[str, str]:
    """Return the variant that was trained for each variant that equals it by construction; a remark names both."""
    slug_of = dict(zip(runs["title"], runs["variant"], strict=True))
    trained = {}
    for note in remarks:
        for title, slug in slug_of.items():
            if f" and {title} are the same by construction" in note["text"]:
                trained[equal_slug(note)] = slug
    return trained


def compared_collapses(
    answer: Mapping[str, Any], results: Results
) -> Iterator[tuple[str, Any, Any]]:
    """Yield a name, the printed and the recomputed value of the numbers of collapsed runs."""
    of_variant = results.collapsed.groupby(results.runs["variant"]).sum()
    named = sorted(of_variant[of_variant > 0].index)
    baseline = results.runs.loc[results.runs["verdict"] == "baseline", "variant"].unique()
    printed_names = sorted(slug for slug in answer["collapses"] if slug not in baseline)
    yield "collapsed variants", str(printed_names), str([n for n in named if n not in baseline])
    for slug, printed in answer["collapses"].items():
        fields = {**printed, **printed["interval"]}
        fields |= {"mean of all runs": printed["all_runs"]["mean"]}
        fields |= {"mean without": printed["without"]["mean"]}
        for name, value in results.collapse(slug, answer["metric"]).items():
            yield f"collapsed runs of {slug}: {name}", fields[name], value


def compared_contrasts(
    answer: Mapping[str, Any], results: Results, trained: Mapping[str, str]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield a name, the printed and the recomputed value of the numbers of contrasts.

    Args:
        answer: The content of ``answer.json``.
        results: The scores.
        trained: The variant with the runs of each variant that equals it.
    """
    tested = [found for found in answer["contrasts"] if found["difference"] is not None]
    for found in tested:
        found["pairs"] = [[trained.get(slug, slug) for slug in pair] for pair in found["pairs"]]
    # The verdict of the first family holds for a difference in all of them.
    judged: dict[Any, dict[str, Any]] = {}
    tested.sort(key=lambda found: (found["family"] != "declared", found["family"] != "factors"))
    for _, group in itertools.groupby(tested, key=lambda found: found["family"]):
        contrasts = list(group)
        has_all = all(has_scores(results.scores_like, found) for found in contrasts)
        if answer["looks"] or not has_all:
            yield from ((f"{found['name']}: not recomputed", None, None) for found in contrasts)
            continue
        margins = [found["margin"] or 0.0 for found in contrasts]
        numbers_of_family = family_numbers(results.scores_like, contrasts, margins)
        for found, own in zip(contrasts, numbers_of_family, strict=True):
            numbers = judged.setdefault(frozenset(weights_of(found).items()), own)
            judged.setdefault(frozenset(weights_of(found, -1).items()), exchanged(own))
            yield from numbers_of(found, numbers)


def has_scores(scores_of: Callable[..., Scores], contrast: Mapping[str, Any]) -> bool:
    """Return whether results.csv has the scores of a contrast, and all of them are of one size and data set."""
    weights = weights_of(contrast)
    kinds = {score for _, score in weights}
    if len(kinds) > 1:
        return all(slug in scores_of(*score) for slug, score in weights)
    first = next(iter(weights))[0]
    scores = {score: scores_of(*score, first) for score in kinds}
    return all(slug in scores[score] for slug, score in weights)


def numbers_of(
    printed: Mapping[str, Any], numbers: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield a name, the printed and the recomputed value of each field of a contrast that is printed."""
    ends = printed["interval"] or {}
    fields = {**printed, **printed["sensitivity"], "low": ends.get("low"), "high": ends.get("high")}
    has_words = printed["direction"] not in ("identical", "cannot tell", "no verdict")
    for name, value in numbers.items():
        if name in ("direction", "size"):
            if has_words:
                yield f"{printed['name']}: {name}", str(fields[name]), str(value)
        elif fields[name] is not None:
            yield f"{printed['name']}: {name}", fields[name], value


def differs(printed: Any, value: Any) -> bool:
    """Return whether a printed value is not the recomputed one."""
    is_text = isinstance(printed, str)
    return (
        printed != value
        if is_text
        else not math.isclose(printed, value, rel_tol=1e-6, abs_tol=1e-9)
    )


def main(folders: Sequence[str]) -> int:
    """Print the number of compared values of each report, and every difference."""
    wrong = 0
    for folder in folders:
        reason = reason_of(Path(folder))
        if reason:
            print(f"{folder}: withdrawn: {reason}")
            continue
        rows = list(compared(Path(folder)))
        checked = [row for row in rows if row[1] is not None]
        different = [row for row in checked if differs(*row[1:])]
        skipped = len(rows) - len(checked)
        print(
            f"{folder}: {len(checked)} values recomputed, {len(different)} different, {skipped} skipped"
        )
        for name, printed, value in different:
            print(f"  {name}: printed {printed}, recomputed {value}")
        wrong += len(different)
    return int(wrong > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help="folder of a report")
    raise SystemExit(main(parser.parse_args().folders))
