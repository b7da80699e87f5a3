"""Recompute the numbers and verdicts of a report's ``answer.json`` from its ``results.csv``, with independent code.

    python benchmarks/recompute.py reports/quickstart [reports/...]

Nothing of headtohead is imported: the default test is written here a second time, from docs/concepts/statistics.md,
with `scipy.stats` and loops. Exit code 1 if a number differs. Studies with looks, and families with a score that
`results.csv` does not have, are counted as not recomputed.
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

HIGHER = ("exact_match", "bleu", "chrf", "accuracy")
"""Ends of the names of metrics whose larger values are better; of all others, smaller ones are."""

Scores = Mapping[str, Mapping[int, float]]


def table_of(scores: Scores) -> pd.DataFrame:
    """Return the scores ``[seed, variant]`` of the seeds that all variants have."""
    return pd.DataFrame(scores).dropna().sort_index()


def moderated_test(table: pd.DataFrame, weights: Mapping[str, float]) -> dict[str, Any]:
    """Return the default test of a weighted sum of the variants' scores ``[seed, variant]``."""
    differences = table[[*weights]].to_numpy() @ np.array([*weights.values()])
    found = paired_test(differences)
    if not found["error"]:
        return found
    n, own = len(table), differences.var(ddof=1)
    is_first = ~table.T.duplicated()  # variants with the same scores count once
    v, limit = sorted(table.var()[is_first]), math.inf
    for k in reversed(range(max(2, math.ceil(len(v) / 2)), len(v))):
        if np.mean(v[:k]) > 1e-20 and stats.f.sf(
            v[k] / np.mean(v[:k]), n - 1, k * (n - 1)
        ) <= 0.07 / len(v):
            limit = v[k]
    if table.var()[[*weights]].max() >= limit:
        return found
    table = table.loc[:, is_first & (table.var() < limit)]
    variants = table.shape[1]
    residuals = table.sub(table.mean(axis=1), axis=0) - table.mean() + table.to_numpy().mean()
    squares = (residuals**2).sum()
    degrees = (variants - 1) * (n - 1)
    logs = np.log(squares[squares > 0])
    excess = logs.var(ddof=1) - special.polygamma(1, (n - 1) / 2) if len(logs) > 1 else 0.0
    prior = 10.0
    if excess > 0:
        prior = min(
            10.0, 2 * optimize.brentq(lambda y: special.polygamma(1, y) - excess, 1e-6, 1e6)
        )
    common = sum(weight**2 for weight in weights.values()) * squares.sum() / degrees
    total = prior + n - 1
    error = math.sqrt((prior * common + (n - 1) * own) / total / n)
    left = max(n - 1, min(total, degrees))
    return found | {
        "error": error,
        "degrees": left,
        "p": 2 * stats.t.sf(abs(found["difference"]) / error, left),
    }


def paired_test(differences: Any) -> dict[str, Any]:
    """Return the paired t-test and the sign-flip test of differences by seed."""
    n = len(differences)
    mean, own = differences.mean(), differences.var(ddof=1)
    flips = [abs(np.dot(signs, differences)) for signs in itertools.product((-1, 1), repeat=n)]
    found: dict[str, Any] = {
        "difference": mean,
        "sign_flip_p": np.mean(
            [flip >= abs(differences.sum()) * (1 - 1e-9) - 1e-15 for flip in flips]
        ),
    }
    if np.ptp(differences) < 1e-12:
        return found | {
            "error": 0.0,
            "degrees": n - 1,
            "p": found["sign_flip_p"],
            "paired_p": found["sign_flip_p"],
        }
    paired_p = stats.ttest_1samp(differences, 0).pvalue
    return found | {
        "error": math.sqrt(own / n),
        "degrees": n - 1,
        "p": paired_p,
        "paired_p": paired_p,
    }


def stepwise(p_values: Sequence[float]) -> list[tuple[float, float]]:
    """Return Holm's adjusted p of each test, and the level at which the procedure tests it."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    result, running, stopped = [(0.0, 0.0)] * len(order), 0.0, 0.0
    for rank, index in enumerate(order):
        left = len(order) - rank
        running = max(running, min(1.0, left * p_values[index]))
        result[index] = running, stopped or 0.05 / left
        if p_values[index] > 0.05 / left and not stopped:
            stopped = 0.05 / left
    return result


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


def exchanged(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of the difference with exchanged sides."""
    ends = {
        "difference": "difference",
        "low": "high",
        "high": "low",
        "size_low": "size_high",
        "size_high": "size_low",
    }
    return {
        name: -numbers[ends[name]] if name in ends else value for name, value in numbers.items()
    }


def family_numbers(
    scores_of: Callable[..., Scores], family: Sequence[Mapping[str, Any]], margins: Sequence[float]
) -> list[dict[str, Any]]:
    """Return the recomputed fields of the contrasts of a family, of which contrasts of the same scores count once.

    Args:
        scores_of: Returns the scores in a metric, for given source lengths, of variants with the size of another one.
        family: The contrasts as printed.
        margins: The margin of each contrast, or 0.
    """
    tested = []
    for contrast in family:
        weights = weights_of(contrast)
        own, *others = {score: None for _, score in weights}
        if others:
            sides = pd.DataFrame({side: scores_of(*side[1])[side[0]] for side in weights}).dropna()
            tested.append(paired_test(sides.to_numpy() @ np.array([*weights.values()])))
        else:
            by_slug = {slug: weight for (slug, _), weight in weights.items()}
            tested.append(moderated_test(table_of(scores_of(*own, next(iter(by_slug)))), by_slug))
    keys = [{frozenset(weights_of(found, sign).items()) for sign in (1, -1)} for found in family]
    first = [keys.index(key) for key in keys]
    once = [
        index
        for index in range(len(family))
        if first[index] == index and math.isfinite(tested[index]["p"])
    ]
    steps = dict(zip(once, stepwise([tested[index]["p"] for index in once]), strict=True))
    sizes: dict[int, float] = {}
    for index in (index for index in once if margins[index]):
        found, margin = tested[index], margins[index]
        sizes[index] = (
            max(
                stats.t.sf((sign * found["difference"] + margin) / found["error"], found["degrees"])
                for sign in (1, -1)
            )
            if found["error"]
            else (0.5 ** (found["degrees"] + 1) if abs(found["difference"]) < margin else 1.0)
        )
    size_steps = dict(zip(sizes, stepwise([*sizes.values()]), strict=True))
    results = []
    for index, found in enumerate(tested):
        adjusted, level = steps[first[index]]
        half = stats.t.ppf(1 - level / 2, found["degrees"]) * found["error"]
        numbers = {name: found[name] for name in ("difference", "p", "paired_p", "sign_flip_p")}
        numbers |= {
            "holm_p": adjusted,
            "low": found["difference"] - half,
            "high": found["difference"] + half,
        }
        if first[index] in sizes:
            margin = margins[first[index]]
            size_p, level = size_steps[first[index]]
            half = stats.t.ppf(1 - level, found["degrees"]) * found["error"]
            low, high = found["difference"] - half, found["difference"] + half
            beyond = low >= margin or high <= -margin
            numbers |= {"size_p": size_p, "size_low": low, "size_high": high}
            numbers["size"] = "within" if size_p <= 0.05 else "beyond" if beyond else "unclear"
        results.append(numbers)
    return results


def equal_slug(note: Mapping[str, Any]) -> str:
    """Return the variant of a remark on equality by construction; answers of format 2 have it in ``variant``."""
    return str(note["variants"][0] if "variants" in note else note["variant"])


def compared(folder: Path) -> Iterator[tuple[str, Any, Any]]:
    """Yield a name, the printed and the recomputed value of every number of a report; a name alone is skipped."""
    answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    runs = pd.read_csv(folder / "results.csv")

    # Of variants that are the same by construction, one was trained; a remark names both.
    slug_of = dict(zip(runs["title"], runs["variant"], strict=True))
    trained = {
        equal_slug(note): slug
        for note in answer["remarks"]
        for title, slug in slug_of.items()
        if f" and {title} are the same by construction" in note["text"]
    }

    size = runs.reindex(columns=["data", "size"]).astype(str).sum(axis=1)

    def scores_of(
        metric: str, lengths: Sequence[int] | None = None, like: str | None = None
    ) -> Scores:
        column = "/".join([metric, *(["-".join(map(str, lengths))] if lengths else [])])
        same = runs if like is None else runs[size == size[runs["variant"] == like].iloc[0]]
        done = same[same[column].notna()] if column in runs else runs[:0]
        return {
            str(slug): dict(zip(rows["seed"], rows[column], strict=True))
            for slug, rows in done.groupby("variant")
        }

    for slug, printed in answer["scores"].items():
        own = scores_of(answer["metric"]).get(trained.get(slug, slug), {})
        yield f"mean of {slug}", printed if own else None, np.mean([*own.values()] or [math.nan])
    tested = [found for found in answer["contrasts"] if found["difference"] is not None]
    for found in tested:
        found["pairs"] = [[trained.get(slug, slug) for slug in pair] for pair in found["pairs"]]
    judged: dict[
        Any, dict[str, Any]
    ] = {}  # the verdict of the first family holds for a difference in all of them
    tested.sort(key=lambda found: (found["family"] != "declared", found["family"] != "factors"))
    for family, group in itertools.groupby(tested, key=lambda found: found["family"]):
        contrasts = list(group)
        has_all = all(
            slug in scores_of(*score) for found in contrasts for slug, score in weights_of(found)
        )
        if answer["looks"] or not has_all:
            yield from ((f"{found['name']}: not recomputed", None, None) for found in contrasts)
            continue
        margins = [
            (answer["margin"] or 0.0) * (found["metric"] == answer["metric"]) for found in contrasts
        ]
        for found, own in zip(
            contrasts, family_numbers(scores_of, contrasts, margins), strict=True
        ):
            numbers = judged.setdefault(frozenset(weights_of(found).items()), own)
            judged.setdefault(frozenset(weights_of(found, -1).items()), exchanged(own))
            direction = direction_of(found, numbers, family)
            printed = dict(found)
            for prefix, name in (("", "interval"), ("size_", "size_interval")):
                ends = found[name] or {}
                printed |= {f"{prefix}low": ends.get("low"), f"{prefix}high": ends.get("high")}
            if found["direction"] not in ("identical", "no verdict"):
                yield f"{found['name']}: direction", found["direction"], direction
            yield from (
                (f"{found['name']}: {name}", printed[name], value)
                for name, value in numbers.items()
                if printed[name] is not None
            )


def direction_of(contrast: Mapping[str, Any], numbers: Mapping[str, Any], family: str) -> str:
    """Return the direction of a contrast with these recomputed numbers."""
    if numbers["holm_p"] > 0.05:
        return "undetected"
    if family == "interactions":
        return "significant"
    is_larger = numbers["difference"] > 0
    if contrast["metric"].startswith("heads/") or contrast.get("against_metric"):
        return "larger" if is_larger else "smaller"
    return "better" if is_larger == contrast["metric"].endswith(HIGHER) else "worse"


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
