"""Judge the record chains of two public benchmarks step by step, and write the tables of a page.

    python benchmarks/records.py docs/results/records.md PARAMETER_GOLF MODDED_NANOGPT

The last arguments are clones of openai/parameter-golf and KellerJordan/modded-nanogpt.
"""

from __future__ import annotations

import itertools
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from headtohead_judge import verdicts
from headtohead_judge.judging import judge
from headtohead_judge.paired_tests import adjusted_for, t_test_p
from headtohead_judge.power import seeds_needed
from headtohead_judge.result_folders import read_results

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
    rows, differences = [], {}
    for before, new in itertools.pairwise(chain):
        shift = LOSS_PER_STEP * (before.steps - new.steps)
        claimed = new.claimed - before.claimed - shift
        row = {"record": new.name, "date": new.date, "claimed": f"{claimed:+.5f}"}
        row["seeds"] = f"{len(before.scores) or '–'}, {len(new.scores) or '–'}"
        if min(len(before.scores), len(new.scores)) > 1:
            sides = {"before": np.array(before.scores) + shift, "new": new.scores}
            lines = [
                (name, str(seed), repr(float(x)))
                for name, side in sides.items()
                for seed, x in enumerate(side)
            ]
            table = pd.DataFrame(lines, columns=["variant", "seed", "loss"])
            differences[len(rows)] = (
                judge(table, baseline="before", is_paired=False).variants[0].difference
            )
        if new.steps and before.scores and new.scores:
            gain = np.mean(before.scores) + shift - np.mean(new.scores)
            value = gain / np.sqrt(1 / len(before.scores) + 1 / len(new.scores))
            row["rule"] = f"{value:.4f}, {'met' if value >= RULE else 'not met'}"
        row["needed"] = (
            str(seeds_needed(claimed / (np.sqrt(2) * sd), sides=2) or "> 1,000")
            if claimed < 0
            else "–"
        )
        rows.append(row)
    found = verdicts.judge([*differences.values()], higher_is_better=False)
    errors = [
        sd * np.sqrt(sum(1 / len(chain[index + side].scores) for side in (0, 1)))
        for index in differences
    ]
    one = []
    for difference, error in zip(differences.values(), errors, strict=True):
        one.append(adjusted_for(len(differences), t_test_p(difference.mean, error, degrees)))
    for (index, difference), judgement, one_p in zip(differences.items(), found, one, strict=True):
        rows[index] |= {
            "difference": f"{difference.mean:+.5f}",
            "interval": f"{judgement.interval.low:+.5f} to {judgement.interval.high:+.5f}",
            "p": f"{difference.p:.2g}",
            "adjusted": f"{judgement.adjusted_p:.2g}",
            "one": f"{one_p:.2g}",
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
    return "\n".join(f"| {' | '.join(line)} |" for line in lines).replace("-0.", "−0.")


SUMMARY = """Of {steps} steps, {tested} have at least two seeds on both sides. **These seeds support {supported}**
({one} if all deviations are equal); {alone} have p ≤ 5 % alone.{rule} The pooled standard deviation is {sd}.

{table}
"""
COLUMNS = {"record": "record", "date": "date", "claimed": "published difference", "seeds": "stored seeds",
           "difference": "difference of the seeds", "interval": "95 % interval", "p": "p", "adjusted": "adjusted p",
           "supported": "supported", "one": "adjusted p, one deviation", "needed": "seeds needed"}  # fmt: skip


def main(page: Path, golf: Path, nanogpt: Path) -> None:
    """Replace the tables of the page."""
    text = page.read_text(encoding="utf-8")
    for name, chain in (("golf", parameter_golf(golf)), ("track", track_3(nanogpt))):
        rows, sd = judged_steps(chain)
        tested = [row for row in rows if "p" in row]
        met = sum(row.get("rule", "").endswith(", met") for row in rows)
        part = SUMMARY.format(
            steps=len(rows),
            tested=len(tested),
            supported=sum(row["supported"] == "**yes**" for row in tested),
            one=sum(
                float(row["one"]) <= 0.05 and row["difference"].startswith("-") for row in tested
            ),
            alone=sum(
                float(row["p"]) <= 0.05 and row["difference"].startswith("-") for row in tested
            ),
            rule=f" {met} of {len(rows)} meet the pairwise rule." if chain[0].steps else "",
            sd=f"{sd:.2g}",
            table=markdown(rows, COLUMNS | ({"rule": "rule of track 3"} if chain[0].steps else {})),
        )
        before, start, rest = text.partition(f"<!-- {name} -->\n")
        text = before + start + part + "<!-- end -->" + rest.partition("<!-- end -->")[2]
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
