"""Recompute the numbers and verdicts of a report's ``answer.json`` from its ``results.csv``, with independent code.

    python benchmarks/recompute.py reports/quickstart [reports/...]
    python benchmarks/recompute.py --records docs/judged/records.md PARAMETER_GOLF MODDED_NANOGPT

The second form recomputes the tables of `records.py` from clones of the two repositories.

Nothing of headtohead is imported: the default test is written here a second time, from docs/concepts/statistics.md,
with `scipy.stats` and loops. Exit code 1 if a number differs. Studies with looks, and families with a score that
`results.csv` does not have, are counted as not recomputed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
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
    table = table.T.drop_duplicates().T  # variants with the same scores count once
    variants = table.shape[1]
    residuals = table.sub(table.mean(axis=1), axis=0) - table.mean() + table.to_numpy().mean()
    squares = (residuals**2).sum()
    degrees = (variants - 1) * (n - 1)
    logs = np.log(squares[squares > 0])
    excess = logs.var(ddof=1) - special.polygamma(1, (n - 1) / 2) if len(logs) > 1 else 0.0
    prior = 10.0
    if excess > 0:
        prior = min(10.0, 2 * optimize.brentq(lambda y: special.polygamma(1, y) - excess, 1e-6, 1e6))
    common = sum(weight**2 for weight in weights.values()) * squares.sum() / degrees
    total = prior + n - 1
    error = math.sqrt((prior * common + (n - 1) * own) / total / n)
    left = max(n - 1, min(total, degrees))
    return found | {"error": error, "degrees": left, "p": 2 * stats.t.sf(abs(found["difference"]) / error, left)}


def paired_test(differences: Any) -> dict[str, Any]:
    """Return the paired t-test and the sign-flip test of differences by seed."""
    n = len(differences)
    mean, own = differences.mean(), differences.var(ddof=1)
    flips = [abs(np.dot(signs, differences)) for signs in itertools.product((-1, 1), repeat=n)]
    found: dict[str, Any] = {
        "difference": mean,
        "sign_flip_p": np.mean([flip >= abs(differences.sum()) * (1 - 1e-9) - 1e-15 for flip in flips]),
    }
    if np.ptp(differences) < 1e-12:
        return found | {"error": 0.0, "degrees": n - 1, "p": found["sign_flip_p"], "paired_p": found["sign_flip_p"]}
    paired_p = stats.ttest_1samp(differences, 0).pvalue
    return found | {"error": math.sqrt(own / n), "degrees": n - 1, "p": paired_p, "paired_p": paired_p}


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


def scored(contrast: Mapping[str, Any]) -> tuple[tuple[str, Any], tuple[str, Any]]:
    """Return metric and source lengths of both sides."""
    lengths = contrast.get("lengths")
    own = contrast["metric"], lengths
    return own, (contrast.get("against_metric") or own[0], contrast.get("against_lengths") or lengths)


def family_numbers(
    scores_of: Callable[[str, Any], Scores], family: Sequence[Mapping[str, Any]], margins: Sequence[float]
) -> list[dict[str, Any]]:
    """Return the recomputed fields of the contrasts of a family, of which contrasts of the same scores count once.

    Args:
        scores_of: Returns the scores in a metric, for given source lengths.
        family: The contrasts as printed.
        margins: The margin of each contrast, or 0.
    """
    tested = []
    for contrast in family:
        pairs, is_interaction = contrast["pairs"], contrast["family"] == "interactions"
        own_score, other_score = scored(contrast)
        if own_score != other_score:
            ((left, right),) = pairs
            sides = pd.DataFrame({"left": scores_of(*own_score)[left], "right": scores_of(*other_score)[right]})
            tested.append(paired_test((sides["left"] - sides["right"]).dropna().to_numpy()))
            continue
        settings = len(pairs) // (2 if is_interaction else 1)
        own: dict[str, float] = {}
        for left, right in pairs:
            own[left] = own.get(left, 0) + 1 / settings
            own[right] = own.get(right, 0) - 1 / settings
        weights = {slug: weight for slug, weight in own.items() if weight}
        tested.append(moderated_test(table_of(scores_of(*own_score)), weights))
    keys = [(found["pairs"], scored(found)) for found in family]
    first = [keys.index(key) for key in keys]
    once = [index for index in range(len(family)) if first[index] == index and math.isfinite(tested[index]["p"])]
    steps = dict(zip(once, stepwise([tested[index]["p"] for index in once]), strict=True))
    sizes: dict[int, float] = {}
    for index in (index for index in once if margins[index]):
        found, margin = tested[index], margins[index]
        sizes[index] = (
            max(
                stats.t.sf((sign * found["difference"] + margin) / found["error"], found["degrees"]) for sign in (1, -1)
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
        numbers |= {"holm_p": adjusted, "low": found["difference"] - half, "high": found["difference"] + half}
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


def compared(folder: Path) -> Iterator[tuple[str, Any, Any]]:
    """Yield a name, the printed and the recomputed value of every number of a report; a name alone is skipped."""
    answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    runs = pd.read_csv(folder / "results.csv")

    # Of variants that are the same by construction, one was trained; a remark names both.
    slug_of = dict(zip(runs["title"], runs["variant"], strict=True))
    trained = {
        note["variant"]: slug
        for note in answer["remarks"]
        for title, slug in slug_of.items()
        if f" and {title} are the same by construction" in note["text"]
    }

    def scores_of(metric: str, lengths: Sequence[int] | None = None) -> Scores:
        column = "/".join([metric, *(["-".join(map(str, lengths))] if lengths else [])])
        done = runs[runs[column].notna()] if column in runs else runs[:0]
        return {str(slug): dict(zip(rows["seed"], rows[column], strict=True)) for slug, rows in done.groupby("variant")}

    for slug, printed in answer["scores"].items():
        own = scores_of(answer["metric"]).get(trained.get(slug, slug), {})
        yield f"mean of {slug}", printed if own else None, np.mean([*own.values()] or [math.nan])
    tested = [found for found in answer["contrasts"] if found["difference"] is not None]
    for found in tested:
        found["pairs"] = [[trained.get(slug, slug) for slug in pair] for pair in found["pairs"]]
    declared: dict[str, dict[str, Any]] = {}  # their verdicts hold for the same scores in every family
    tested.sort(key=lambda found: found["family"] != "declared")
    for family, group in itertools.groupby(tested, key=lambda found: found["family"]):
        contrasts = list(group)
        has_all = all(
            slug in scores_of(*score)
            for found in contrasts
            for pair in found["pairs"]
            for slug, score in zip(pair, scored(found), strict=True)
        )
        if answer["looks"] or not has_all:
            yield from ((f"{found['name']}: not recomputed", None, None) for found in contrasts)
            continue
        margins = [(answer["margin"] or 0.0) * (found["metric"] == answer["metric"]) for found in contrasts]
        for found, own in zip(contrasts, family_numbers(scores_of, contrasts, margins), strict=True):
            key = json.dumps([found["pairs"], scored(found)])
            numbers = declared.setdefault(key, own) if family == "declared" else declared.get(key, own)
            words = ("better", "worse") if found["metric"].endswith(HIGHER) else ("worse", "better")
            if found["metric"].startswith("heads/") or found.get("against_metric"):
                words = ("larger", "smaller")
            direction = "undetected" if numbers["holm_p"] > 0.05 else words[int(numbers["difference"] <= 0)]
            if direction != "undetected" and family == "interactions":
                direction = "significant"
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


def golf_scores(clone: Path) -> list[tuple[str, list[float], int]]:
    """Return the published score, the stored scores and 0 for every record of parameter-golf."""
    stored = []
    for file in (clone / "records" / "track_10min_16mb").glob("*/submission*.json"):
        record = json.loads(file.read_text(encoding="utf-8"))
        seeds = record.get("seed_results", record.get("seeds"))
        if isinstance(seeds, dict):
            stored.append([run["val_bpb"] for run in seeds.values()])
        elif "val_bpb" in record:
            stored.append(record.get("seed_scores", [record["val_bpb"]]))
    table = (clone / "README.md").read_text(encoding="utf-8").split("## Leaderboard")[1].split("#### Unlimited")[0]
    cells = [[cell.strip() for cell in line.split("|")] for line in table.splitlines() if line.startswith("|")][2:]
    chain: list[tuple[str, list[float], int]] = []
    for _, score in sorted((row[5], -float(row[2])) for row in cells):
        if not chain or -score < float(chain[-1][0]):
            gap = [abs(np.mean(scores) + score) for scores in stored]
            chain.append((str(-score), stored[int(np.argmin(gap))] if min(gap) < 0.0003 else [], 0))
    return chain


def track_scores(clone: Path) -> list[tuple[str, list[float], int]]:
    """Return the published loss, the stored losses and the steps of every record of track 3 of modded-nanogpt."""
    folder, chain = clone / "records" / "track_3_optimization", []
    for line in (folder / "README.md").read_text(encoding="utf-8").splitlines():
        cells = line.split(" | ")
        if len(cells) > 1 and cells[1].endswith("(!)"):
            steps, published = cells[1][:-3], cells[2].split()[0]
            log = folder / line.split("[log](")[1].split(")")[0]
            files = [log] if log.parent.name == "results" else log.parent.rglob("*.txt")
            lines = {found for file in files for found in file.read_text(encoding="utf-8").splitlines()
                     if found.startswith(f"step:{steps}/") and " val_loss:" in found}  # fmt: skip
            runs = pd.DataFrame([dict(part.split(":", 1) for part in found.split()) for found in lines])
            losses = [runs[name].astype(float) for name in runs if name.startswith("val")]
            best = min(losses, key=lambda column: abs(column.mean() - float(published)))
            chain.append((published, list(best), int(steps)))
    return chain


def recomputed_records(page: Path, clones: Sequence[Path]) -> Iterator[tuple[str, Any, Any]]:
    """Yield a name, the printed and the recomputed value of every cell of the two tables."""
    parts = page.read_text(encoding="utf-8").replace("−", "-").split("<!-- end -->")
    for part, chain in zip(parts, (golf_scores(clones[0]), track_scores(clones[1])), strict=False):
        table = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
        rows = [dict(zip(table[0], line, strict=True)) for line in table[2:]]
        several = [scores for _, scores, _ in chain if len(scores) > 1]
        left = sum(map(len, several)) - len(several)
        sd = math.sqrt(sum(((np.array(scores) - np.mean(scores)) ** 2).sum() for scores in several) / left)
        printed = re.findall(r"\d[.\d]*\d|\d", part.split("Of ")[-1].split("| record")[0].replace("5 %", ""))
        tests, met = [], 0
        for (old, before, long), (new, now, short), row in zip(chain, chain[1:], rows, strict=False):
            price = 0.0045 * (long - short) / 100
            claimed = float(new) - float(old) - price
            values: dict[str, Any] = {"published difference": claimed}
            values["stored seeds"] = ", ".join(str(len(side)) if side else "–" for side in (before, now))
            values["seeds needed"] = "–"
            if claimed < 0:
                for n in range(2, 1001):
                    noncentrality, critical = -claimed / sd * math.sqrt(n / 2), stats.t.isf(0.025, 2 * n - 2)
                    ends = [stats.nct.sf(critical, 2 * n - 2, sign * noncentrality) for sign in (1, -1)]
                    if np.nansum(ends) >= 0.8:
                        values["seeds needed"] = str(n)
                        break
            if short:
                scale = math.sqrt(1 / len(before) + 1 / len(now))
                value = (np.mean(before) + price - np.mean(now)) / scale
                values["rule of track 3"] = f"{value:.4f}, {'met' if value >= 0.004 else 'not met'}"
            if len(before) > 1 and len(now) > 1:
                found = stats.ttest_ind(now, np.array(before) + price, equal_var=False)
                ends = found.confidence_interval(0.95)
                values["difference of the seeds"] = np.mean(now) - np.mean(before) - price
                values["95 % interval"] = f"{ends.low:+.5f} to {ends.high:+.5f}"
                error = sd * math.sqrt(1 / len(before) + 1 / len(now))
                same = 2 * stats.t.sf(abs(values["difference of the seeds"]) / error, left)
                tests.append((row, values, found.pvalue, same))
            yield from ((f"{row['record']}: {name}", row[name], value) for name, value in values.items())
            met += values.get("rule of track 3", "").endswith(", met")
        names = ("Holm p", "Holm p, one deviation")
        adjusted = [stepwise([test[index] for test in tests]) for index in (2, 3)]
        improved = [values["difference of the seeds"] < 0 for _, values, *_ in tests]
        holm_counts = [sum(np.array(improved) & (np.array(part)[:, 0] <= 0.05)) for part in adjusted]
        counts = [
            len(chain) - 1,
            len(tests),
            *holm_counts,
            sum(b and test[2] <= 0.05 for b, test in zip(improved, tests, strict=True)),
        ]
        counts += [met, len(rows)] if chain[0][2] else []
        yield "numbers of the summary", printed, [*map(str, counts), f"{sd:.2g}"]
        for (row, values, p, _), *holms in zip(tests, *adjusted, strict=True):
            is_better = holms[0][0] <= 0.05 and values["difference of the seeds"] < 0
            yield f"{row['record']}: p", row["p"], f"{p:.2g}"
            yield f"{row['record']}: supported", row["supported"], "**yes**" if is_better else "no"
            for name, (holm_p, _) in zip(names, holms, strict=True):
                yield f"{row['record']}: {name}", row[name], f"{holm_p:.2g}"


def check_records(page: str, *clones: str) -> int:
    """Print the number of recomputed cells of the page, and every difference."""
    cells = list(recomputed_records(Path(page), [*map(Path, clones)]))
    shown = [(name, printed, f"{value:+.5f}" if isinstance(value, float) else value) for name, printed, value in cells]
    different = [cell for cell in shown if cell[1] != cell[2]]
    print(f"{page}: {len(shown)} values recomputed, {len(different)} different")
    for name, printed, value in different:
        print(f"  {name}: printed {printed}, recomputed {value}")
    return int(bool(different))


def main(folders: Sequence[str]) -> int:
    """Print the number of compared values of each report, and every difference."""
    wrong = 0
    for folder in folders:
        rows = list(compared(Path(folder)))
        skipped = [name for name, printed, _ in rows if printed is None]
        different = [
            (name, printed, value)
            for name, printed, value in rows
            if printed is not None
            and (
                printed != value
                if isinstance(printed, str)
                else not math.isclose(printed, value, rel_tol=1e-6, abs_tol=1e-9)
            )
        ]
        number = len(rows) - len(skipped)
        print(f"{folder}: {number} values recomputed, {len(different)} different, {len(skipped)} skipped")
        for name, printed, value in different:
            print(f"  {name}: printed {printed}, recomputed {value}")
        wrong += len(different)
    return int(wrong > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help="folder of a report; with --records a clone")
    parser.add_argument("--records", metavar="PAGE", help="recompute this page of records")
    chosen = parser.parse_args()
    raise SystemExit(check_records(chosen.records, *chosen.folders) if chosen.records else main(chosen.folders))
