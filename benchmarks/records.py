"""Judge the record chains of two public benchmarks step by step, and write the tables of a page.

    python benchmarks/records.py docs/results/records.md PARAMETER_GOLF MODDED_NANOGPT

The last arguments are clones of openai/parameter-golf and KellerJordan/modded-nanogpt.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from records_reruns import COLUMNS as RERUN_COLUMNS
from records_reruns import rerun_rows
from records_tests import Side, moderated, step_p, welch_power

from headtohead_judge import verdicts
from headtohead_judge.paired_tests import adjusted_for, level_of_each, t_test_p
from headtohead_judge.result_folders import read_results
from headtohead_judge.unpaired import unpaired

LOSS_PER_STEP = 0.0045 / 100
"""Increase of the loss for each step less, as track 3 of modded-nanogpt states it."""
RULE = 0.004
"""Least improvement times the root of the seeds, a rule of track 3."""
GOLF_ROW = re.compile(
    r"^\|[^|]*\| (\d\.\d+) \|.*\| (20\d\d-\d\d-\d\d) \|(?:.*track_10min_16mb/([^/)]+))?",
    re.MULTILINE,
)
GOLF_SCORE = re.compile(r"exact val_loss:[\d.]+ val_bpb:([\d.]+)")
TRACK_ROW = re.compile(
    r"^\| (\d+) \| (\d+)\(!\) \| (\d\.\d+) \(n=(\d+)\).*\| (20[\d/]+) \| \[log\]\(results/(.*?)\)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Record:
    """A record: its name, its published score, and the stored scores of its seeds; for track 3, its steps."""

    name: str
    date: str
    claimed: float
    scores: tuple[float, ...]
    steps: int = 0


def parameter_golf(clone: Path) -> list[Record]:
    """Return the rows of the leaderboard that improved it when they came, with the scores of their submissions."""
    readme = (clone / "README.md").read_text(encoding="utf-8").partition("#### Unlimited")[0]
    folder = clone / "records" / "track_10min_16mb"
    table = read_results(folder).dropna(subset="val_bpb")
    stored = {
        str(name): tuple(rows["val_bpb"].astype(float)) for name, rows in table.groupby("variant")
    }
    for name in [path.name for path in folder.iterdir()]:
        printed = [
            GOLF_SCORE.findall(log.read_text(errors="replace"))
            for log in (folder / name).rglob("*.log")
        ]
        logged = {float(scores[-1]) for scores in printed if scores}
        if len(logged) > max(1, len(stored.get(name, ()))):
            stored[name] = tuple(logged)
    chain: list[Record] = []
    for score, date, link in sorted(
        GOLF_ROW.findall(readme), key=lambda row: (row[1], -float(row[0]))
    ):
        if not chain or float(score) < chain[-1].claimed:
            nearest = min(
                stored.values(),
                key=lambda scores: (abs(np.mean(scores) - float(score)), -len(scores)),
            )
            scores = stored.get(link, ()) or (
                nearest if abs(np.mean(nearest) - float(score)) < 3e-4 else ()
            )
            chain.append(Record(str(len(chain) + 1), date, float(score), scores))
    return chain


def track_3(clone: Path) -> list[Record]:
    """Return the records in steps, with the validation losses of their runs at the published step."""
    folder = clone / "records" / "track_3_optimization"
    table = read_results(folder / "results")
    chain = []
    for number, steps, claimed, n, date, log in TRACK_ROW.findall(
        (folder / "README.md").read_text(encoding="utf-8")
    ):
        variant = str(Path(log).parent) if "/" in log else Path(log).stem
        runs = table[
            (table["variant"] + "/").str.startswith(f"{variant}/") & (table["step"] == steps)
        ]
        runs = runs.drop_duplicates(["val_loss", "train_seconds"])  # copies of a log are one run
        if len(runs) > int(
            n
        ):  # the same seeds on another device, with which the names of the logs begin
            runs = runs[runs["seed"].str.startswith(Path(log).stem.partition("_")[0])]
        metrics = [
            runs[name].astype(float)
            for name in runs
            if name.startswith("val_") and runs[name].notna().all()
        ]
        losses = min(metrics, key=lambda column: abs(column.mean() - float(claimed)))
        if len(runs) < int(n):  # a table with a column per step and a row per seed
            lines = (
                (folder / "results" / variant / "README.md")
                .read_text(encoding="utf-8")
                .splitlines()
            )
            columns = next(line.split("|") for line in lines if line.startswith("| seed |"))
            place = [column.strip() for column in columns].index(f"step {steps}")
            losses = pd.Series(
                [float(line.split("|")[place]) for line in lines if re.match(r"\| *\d+ \|", line)]
            )
        chain.append(
            Record(f"#{number}", date.replace("/", "-"), float(claimed), tuple(losses), int(steps))
        )
    return chain


def judged_steps(chain: list[Record]) -> tuple[list[dict[str, str]], float]:
    """Return a row per record after the first, and the pooled standard deviation between seeds."""
    several = [record.scores for record in chain if len(record.scores) > 1]
    degrees = sum(len(scores) - 1 for scores in several)
    sd = float(np.sqrt(sum(np.var(scores) * len(scores) for scores in several) / degrees))
    shrunk = iter(moderated(several))
    variance_of = {record.name: next(shrunk) for record in chain if len(record.scores) > 1}
    rows: list[dict[str, str]] = []
    tested: list[tuple[dict[str, str], Record, Record, float]] = []
    for before, new in itertools.pairwise(chain):
        price = LOSS_PER_STEP * (before.steps - new.steps)
        claimed = new.claimed - before.claimed - price
        row = {"record": new.name, "date": new.date, "claimed": f"{claimed:+.5f}"}
        row["seeds"] = f"{len(before.scores) or '–'}, {len(new.scores) or '–'}"
        if new.steps and before.scores and new.scores:
            gain = np.mean(before.scores) + price - np.mean(new.scores)
            value = gain / np.sqrt(1 / len(before.scores) + 1 / len(new.scores))
            row["rule"] = f"{value:.4f}, {'met' if value >= RULE else 'not met'}"
        rows.append(row)
        if min(len(before.scores), len(new.scores)) > 1:
            tested.append((row, before, new, price))
    differences = []
    for _, before, new, price in tested:
        differences.append(unpaired(new.scores, np.array(before.scores) + price))
    number = len(tested)
    judgements = verdicts.judge(differences, higher_is_better=False)
    for (row, before, new, _), difference, judgement in zip(
        tested, differences, judgements, strict=True
    ):
        counts = len(before.scores), len(new.scores)
        error = math.sqrt(sum(sd**2 / count for count in counts))
        one = t_test_p(difference.mean, error, degrees)
        own = step_p(
            difference.mean,
            [Side(variance_of[record.name], len(record.scores)) for record in (before, new)],
        )
        effect = float(row["claimed"]) / sd
        power = welch_power(effect, counts, level_of_each(number)) if effect < 0 else None
        row |= {
            "difference": f"{difference.mean:+.5f}",
            "interval": f"{judgement.interval.low:+.5f} to {judgement.interval.high:+.5f}",
            "p": f"{difference.p:.2g}",
            "adjusted": f"{judgement.adjusted_p:.2g}",
            "moderated": f"{adjusted_for(number, own):.2g}",
            "one": f"{adjusted_for(number, one):.2g}",
            "power": "–" if power is None else f"{100 * power:.0f} %",
            "supported": {"better": "**yes**", "worse": "worse"}.get(judgement.direction, "no"),
        }
    return rows, sd


def markdown(rows: list[dict[str, str]], columns: dict[str, str]) -> str:
    """Return the rows as a table; ``columns`` maps the fields to headings."""
    lines = [
        [*columns.values()],
        ["---"] * len(columns),
        *([row.get(name, "–") for name in columns] for row in rows),
    ]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return re.sub(r"(?<= )-(?=\d)", "−", text)


SUMMARY = """Of {steps} steps, {tested} have at least two seeds on both sides. **These seeds support {supported}**
({moderated} with moderated variances, {one} if all deviations are equal); {alone} have p ≤ 5 % alone.{rule} The pooled
standard deviation is {sd}. {shrinkage}

{table}
"""
EQUAL = "The deviations of the records differ no more than chance explains, so all moderated variances are equal."
SHRUNK = "The variance of all records adds {degrees:.0f} degrees of freedom to that of each."
RERUNS = """{records} records have runs of the earlier record by the same author, with {variants} variants. **{faster}
of them are faster**, {slower} slower. The loss of {lower} is lower, of {higher} higher; the others show no difference.

{table}
"""
COLUMNS = {
    "record": "record",
    "date": "date",
    "claimed": "published difference",
    "seeds": "stored seeds",
    "difference": "difference of the seeds",
    "interval": "95 % interval",
    "p": "p",
    "adjusted": "adjusted p",
    "supported": "supported",
    "moderated": "adjusted p, moderated",
    "one": "adjusted p, one deviation",
    "power": "power",
}


def chain_text(chain: list[Record]) -> str:
    """Return the summary and the table of a chain."""
    rows, sd = judged_steps(chain)
    tested = [row for row in rows if "p" in row]
    has_steps = bool(chain[0].steps)
    met = sum(row.get("rule", "").endswith(", met") for row in rows)
    return SUMMARY.format(
        steps=len(rows),
        tested=len(tested),
        supported=num_improvements(tested, "adjusted"),
        moderated=num_improvements(tested, "moderated"),
        one=num_improvements(tested, "one"),
        alone=num_improvements(tested, "p"),
        rule=f" {met} of {len(rows)} meet the pairwise rule." if has_steps else "",
        sd=f"{sd:.2g}",
        shrinkage=shrinkage_text(chain),
        table=markdown(rows, COLUMNS | ({"rule": "rule of track 3"} if has_steps else {})),
    )


def shrinkage_text(chain: list[Record]) -> str:
    """Return how much the variance of all records contributes to the moderated variance of each."""
    several = [record.scores for record in chain if len(record.scores) > 1]
    added = moderated(several)[0].degrees - (len(several[0]) - 1)
    return EQUAL if math.isinf(added) else SHRUNK.format(degrees=added)


def num_improvements(rows: list[dict[str, str]], column: str) -> int:
    """Return the number of smaller scores with a p-value of at most 5 % in a column."""
    return sum(float(row[column]) <= 0.05 and row["difference"].startswith("-") for row in rows)


def reruns_text(clone: Path) -> str:
    """Return the summary and the table of the records with runs of the earlier record."""
    rows, counts = rerun_rows(clone)
    return RERUNS.format(
        records=counts["records"],
        variants=counts["variants"],
        faster=counts.get("seconds better", 0),
        slower=counts.get("seconds worse", 0),
        lower=counts.get("loss better", 0),
        higher=counts.get("loss worse", 0),
        table=markdown(rows, RERUN_COLUMNS),
    )


def main(page: Path, golf: Path, nanogpt: Path) -> None:
    """Replace the tables of the page."""
    parts = {
        "golf": chain_text(parameter_golf(golf)),
        "track": chain_text(track_3(nanogpt)),
        "reruns": reruns_text(nanogpt),
    }
    text = page.read_text(encoding="utf-8")
    for name, part in parts.items():
        before, start, rest = text.partition(f"<!-- {name} -->\n")
        text = before + start + part + "<!-- end -->" + rest.partition("<!-- end -->")[2]
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
