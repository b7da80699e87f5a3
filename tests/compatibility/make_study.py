"""Make the stored study of this version: ``python tests/compatibility/make_study.py FOLDER``.

The folder gets an experiment file, its run directories and report, an exported model and a ledger. Values that name the
machine are replaced, and private files are deleted. Tests of later versions read the study, so it is made once per
format: never replace ``tests/compatibility/study`` to make a test pass.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

import headtohead as h2h
from headtohead import files
from headtohead_judge.judging import judge
from headtohead_judge.ledger import Ledger

NAME = "stored"
EXPERIMENT = """\
question: Does a stored study survive an upgrade?
base:
  data: {dataset: toy-grammar, size: 200}
  model: {d_model: 8, heads: 2, layers: 1, d_ff: 16, dropout: 0.1}
  train: {steps: 40, batch_tokens: 128, lr: 2.0e-2, evaluate_every: 20}
baseline: {positional: sinusoidal}
design:
  - one_at_a_time: {positional: [none]}
seeds: 2
margin: 0.05
metrics: {primary: valid/loss, report: [test/exact_match]}
"""

PRIVATE = (".stacks", ".leases", ".loggers", ".layout.lock")
MACHINE = {"platform": "Linux", "processor": "x86-64"}
KEPT_OF_REPORT = ("answer.json", "results.csv")

# Scores of a chain of three variants with six seeds; faster is kept, wider is not.
CHAIN = (
    ("main", "faster", [3.02, 2.97, 3.05, 3.01, 2.96, 3.03], [2.61, 2.55, 2.66, 2.58, 2.56, 2.63]),
    ("faster", "wider", [2.60, 2.57, 2.64, 2.59, 2.53, 2.62], [2.62, 2.54, 2.66, 2.57, 2.55, 2.61]),
)


def train(folder: Path, cache: Path) -> None:
    """Write the experiment file and train its runs with ``h2h run``."""
    (folder / f"{NAME}.yaml").write_text(EXPERIMENT, encoding="utf-8")
    command = [sys.executable, "-P", "-m", "headtohead.cli", "run", f"{NAME}.yaml"]
    options = ["--no-tracking", "--workers", "1", "--threads", "1"]
    environment = os.environ | {"H2H_CACHE": str(cache)}
    subprocess.run([*command, *options], cwd=folder, env=environment, check=True)


def replace_machine(experiment: Path) -> None:
    """Replace the values that name the machine in the records of an experiment, and update their checksums."""
    for path in experiment.rglob("*.json"):
        record = files.read_json(path)
        if "versions" in record:
            record["versions"] |= MACHINE
            files.write_json(path, record)
    for path in experiment.glob("*/status.json"):
        record = files.read_json(path) | {"host": "host", "pid": 1}
        run = (path.parent / "run.json").read_bytes()
        record["files"]["run.json"] = hashlib.sha256(run).hexdigest()
        files.write_json(path, record)


def delete_private_files(folder: Path) -> None:
    """Delete the private files of the experiment, and the files of the report that no program reads."""
    for name in PRIVATE:
        path = folder / "runs" / NAME / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    report = folder / "reports" / NAME
    for path in [*report.iterdir()]:
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in KEPT_OF_REPORT:
            path.unlink()


def decide(path: Path) -> None:
    """Write a ledger with a kept and a rejected change."""
    ledger = Ledger.read(path)
    for incumbent, candidate, old, new in CHAIN:
        first_seed = 1 + 6 * len(ledger.decisions)
        rows = [
            {"variant": variant, "seed": str(seed), "loss": score}
            for variant, scores in ((incumbent, old), (candidate, new))
            for seed, score in enumerate(scores, first_seed)
        ]
        judged = judge(
            pd.DataFrame(rows), baseline=incumbent, metric="loss", higher_is_better=False
        )
        ledger = ledger.append(ledger.decide(judged))
    ledger.lock.unlink()


def main() -> None:
    """Make the study in the folder of the command line, which must not exist."""
    parser = argparse.ArgumentParser(description="Make the stored study of this version.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as cache:
        train(folder, Path(cache))
        replace_machine(folder / "runs" / NAME)
        delete_private_files(folder)
        (run, *_) = sorted((folder / "runs" / NAME).glob("sinusoidal-s1-*"))
        os.environ["H2H_CACHE"] = cache
        h2h.export(run, folder / "model")
    decide(folder / "ledger.jsonl")


if __name__ == "__main__":
    main()
