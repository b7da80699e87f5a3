"""Judge the record chains of two public benchmarks step by step, and write the tables of a page.

    python benchmarks/records.py docs/results/records.md PARAMETER_GOLF MODDED_NANOGPT

The last arguments are clones of openai/parameter-golf and KellerJordan/modded-nanogpt.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from records_reruns import COLUMNS as RERUN_COLUMNS
from records_reruns import rerun_rows
from step_tests import Side, moderated, moderated_p, pooled, welch_power

from headtohead_judge import verdicts
from headtohead_judge.paired_tests import (
    ALPHA,
    Difference,
    adjusted_for,
    level_of_each,
    t_test_p,
)
from headtohead_judge.result_folders import read_results
from headtohead_judge.unpaired import unpaired
from headtohead_judge.verdicts import Judgement

LOSS_PER_STEP = 0.0045 / 100
"""Increase of the loss for each step less, as track 3 of modded-nanogpt states it."""
RULE = 0.004
"""Least improvement divided by the root of 1/n + 1/m, the pairwise rule of track 3."""
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


@dataclass(frozen=True)
class Step:
    """A record after another one.

    Attributes:
        before: The earlier record.
        new: The record.
    """

    before: Record
    new: Record

    @property
    def price(self) -> float:
        """The increase of the loss that the saved steps of track 3 explain."""
        return LOSS_PER_STEP * (self.before.steps - self.new.steps)

    @property
    def claimed(self) -> float:
        """The difference of the published scores."""
        return self.new.claimed - self.before.claimed - self.price

    @property
    def seeds(self) -> tuple[int, int]:
        """The numbers of stored scores of both sides."""
        return len(self.before.scores), len(self.new.scores)

    @property
    def row(self) -> dict[str, str]:
        """The cells that need no test."""
        counts = [str(count or "–") for count in self.seeds]
        row = {
            "record": self.new.name,
            "date": self.new.date,
            "claimed": f"{self.claimed:+.5f}",
            "seeds": ", ".join(counts),
        }
        if self.new.steps and min(self.seeds) > 0:
            gain = np.mean(self.before.scores) + self.price - np.mean(self.new.scores)
            value = gain / np.sqrt(1 / self.seeds[0] + 1 / self.seeds[1])
            row["rule"] = f"{value:.4f}, {'met' if value >= RULE else 'not met'}"
        return row

    @property
    def difference(self) -> Difference:
        """The difference of the stored scores, by Welch's t-test."""
        return unpaired(self.new.scores, np.array(self.before.scores) + self.price)


@dataclass(frozen=True)
class TestedStep:
    """A step with its judgement and its p-values under other assumptions, corrected for the number of tested steps."""

    step: Step
    judgement: Judgement
    moderated_p: float
    pooled_p: float
    power: float | None

    @property
    def is_smaller(self) -> bool:
        """Whether the scores of the record are smaller."""
        return self.step.difference.mean < 0

    @property
    def row(self) -> dict[str, str]:
        """The cells of the tests."""
        difference, interval = self.step.difference, self.judgement.interval
        supported = {"better": "**yes**", "worse": "worse"}
        return {
            "difference": f"{difference.mean:+.5f}",
            "interval": f"{interval.low:+.5f} to {interval.high:+.5f}",
            "p": f"{difference.p:.2g}",
            "adjusted": f"{self.judgement.adjusted_p:.2g}",
            "moderated": f"{self.moderated_p:.2g}",
            "one": f"{self.pooled_p:.2g}",
            "power": "–" if self.power is None else f"{100 * self.power:.0f} %",
            "supported": supported.get(self.judgement.direction, "no"),
        }


def tested_steps(steps: Sequence[Step], records: Sequence[Record]) -> list[TestedStep]:
    """Return the steps with at least two scores on both sides, judged as a family."""
    several = [record for record in records if len(record.scores) > 1]
    groups = [record.scores for record in several]
    common = pooled(groups)
    variance_of = dict(zip([record.name for record in several], moderated(groups), strict=True))
    steps = [step for step in steps if min(step.seeds) > 1]
    judgements = verdicts.judge([step.difference for step in steps], higher_is_better=False)
    level = level_of_each(len(steps))
    tested = []
    for step, judgement in zip(steps, judgements, strict=True):
        of_records = [
            Side(variance_of[record.name], len(record.scores)) for record in (step.before, step.new)
        ]
        of_all = [Side(common, count) for count in step.seeds]
        mean = step.difference.mean
        error = math.sqrt(sum(side.variance.value / side.seeds for side in of_all))
        power = None
        if step.claimed < 0:
            power = welch_power(step.claimed / math.sqrt(common.value), step.seeds, level)
        moderated_alone = moderated_p(mean, of_records, common.degrees)
        pooled_alone = t_test_p(mean, error, common.degrees)
        tested.append(
            TestedStep(
                step,
                judgement,
                moderated_p=adjusted_for(len(steps), moderated_alone),
                pooled_p=adjusted_for(len(steps), pooled_alone),
                power=power,
            )
        )
    return tested


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
EQUAL = "The deviations of the records differ no more than chance explains, so moderated variances are pooled."
SHRUNK = "The variance of all records adds {degrees:.0f} degrees of freedom to that of each."
RERUNS = """{variants} variants of {records} records are compared. **{faster} variants are faster**, {slower} slower.
The loss of {lower} is lower, of {higher} higher; for the others no difference was found.

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
    steps = [Step(before, new) for before, new in itertools.pairwise(chain)]
    tested = tested_steps(steps, chain)
    cells = {found.step: found.row for found in tested}
    rows = [step.row | cells.get(step, {}) for step in steps]
    smaller = [found for found in tested if found.is_smaller]
    has_rule = bool(chain[0].steps)
    met = sum(row.get("rule", "").endswith(", met") for row in rows)
    groups = [record.scores for record in chain if len(record.scores) > 1]
    return SUMMARY.format(
        steps=len(rows),
        tested=len(tested),
        supported=sum(found.judgement.direction == "better" for found in tested),
        moderated=sum(found.moderated_p <= ALPHA for found in smaller),
        one=sum(found.pooled_p <= ALPHA for found in smaller),
        alone=sum(found.step.difference.p <= ALPHA for found in smaller),
        rule=f" {met} of {len(rows)} meet the pairwise rule." if has_rule else "",
        sd=f"{math.sqrt(pooled(groups).value):.2g}",
        shrinkage=shrinkage_text(groups),
        table=markdown(rows, COLUMNS | ({"rule": "rule of track 3"} if has_rule else {})),
    )


def shrinkage_text(groups: Sequence[Sequence[float]]) -> str:
    """Return how much the variance of all records contributes to the moderated variance of each."""
    if moderated(groups)[0] == pooled(groups):
        return EQUAL
    added = moderated(groups)[0].degrees - (len(groups[0]) - 1)
    return SHRUNK.format(degrees=added)


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
