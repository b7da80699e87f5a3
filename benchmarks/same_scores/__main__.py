"""Compare the scores of two versions of the code, run by run and bit for bit.

    python benchmarks/same_scores --before COMMIT [--file PAIRS] [--threads 1] [STUDY ...]

A refactoring must not change a score. The script checks out COMMIT beside the working tree, runs each study with both
versions (same Python, same machine, same number of threads) and compares every column of results.csv that is a score:
train/, valid/, test/ and attention/ metrics, sizes and the data hash. Exit code 1 if a value differs.

Studies: ``quickstart`` (the committed experiment), ``matched`` (a parameter-matched product), ``subwords`` (Tatoeba
pairs with subword vocabularies; needs --file and the extra ``subwords``), ``recipes`` and ``by-hand`` (the notebooks).
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STUDIES = ("quickstart", "matched", "subwords", "recipes", "by-hand")
PREFIXES = ("train/", "valid/", "test/", "attention/", "parameters/", "flops_per_token", "steps")
RENAMED_COLUMNS: dict[str, str] = {
    "test/loss_unpadded": "test/loss_alone",
    "test/exact_match_unpadded": "test/exact_match_alone",
}
"""Columns of the earlier version by their name in this one."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("studies", nargs="*", default=STUDIES, help=", ".join(STUDIES))
    parser.add_argument("--before", required=True, metavar="COMMIT", help="the version to compare with")
    parser.add_argument("--file", type=Path, help="Tatoeba sentence pairs, for the study `subwords`")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each worker")
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder, checked_out(options.before, Path(folder)) as before:
        for name in options.studies:
            if name == "subwords" and options.file is None:
                print("subwords: skipped; it needs --file")
                continue
            tables = [
                scores(run(tree, name, Path(folder) / side, options.file, options.threads), renamed)
                for tree, side, renamed in ((before, "before", RENAMED_COLUMNS), (ROOT, "after", {}))
            ]
            differences = list(compare(*tables))
            values = sum(map(len, tables[0].values()))
            print(f"{name}: {len(tables[0])} runs, {values:,} values, {len(differences)} different")
            for line in differences[:20]:
                print(f"  {line}")
            failed |= bool(differences) or not tables[0]
    return int(failed)


class checked_out:
    """A git worktree of a commit, removed at the end."""

    def __init__(self, commit: str, folder: Path) -> None:
        self.commit, self.path = commit, folder / "tree"

    def __enter__(self) -> Path:
        command = ["git", "worktree", "add", "--quiet", "--detach", str(self.path), self.commit]
        subprocess.run(command, cwd=ROOT, check=True)
        return self.path

    def __exit__(self, *error: object) -> None:
        subprocess.run(["git", "worktree", "remove", "--force", str(self.path)], cwd=ROOT, check=True)


def run(tree: Path, name: str, folder: Path, pairs: Path | None, threads: int) -> Path:
    """Run a study with the code of a tree and return the results.csv of its report."""
    file = (
        tree / "experiments" / "quickstart.yaml" if name == "quickstart" else Path(__file__).with_name(f"{name}.yaml")
    )
    paths = os.pathsep.join(str(tree / part) for part in ("harness", "plugins"))
    overrides = ["--set", f"data.file={pairs.resolve()}", "--name", "scores"] if name == "subwords" and pairs else []
    command = [sys.executable, "-m", "headtohead.cli", "run", str(file), "--no-tracking", "--threads", str(threads)]
    command += ["--runs", str(folder / "runs"), "--reports", str(folder / "reports"), *overrides]
    environment = os.environ | {"PYTHONPATH": paths, "H2H_CACHE": str(folder / "cache")}
    subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.DEVNULL)
    (found,) = (folder / "reports").glob(f"{file.stem}*/results.csv")
    return found


def scores(path: Path, renamed: dict[str, str]) -> dict[tuple[str, str], dict[str, str]]:
    """Return the texts of all scores by variant and seed."""
    with path.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    names = {old: new for new, old in renamed.items()}
    return {
        (row["title"], row["seed"]): {
            names.get(column, column): text
            for column, text in row.items()
            if names.get(column, column).startswith(PREFIXES)
        }
        for row in rows
    }


def compare(
    before: dict[tuple[str, str], dict[str, str]], after: dict[tuple[str, str], dict[str, str]]
) -> Iterator[str]:
    """Yield a line for every run that one side lacks and every value of ``before`` that differs or is gone.

    Scores that only the later version has are not compared.
    """
    for variant, seed in sorted(before.keys() | after.keys()):
        old, new = before.get((variant, seed), {}), after.get((variant, seed), {})
        for column in sorted(old or new):
            if old.get(column) != new.get(column):
                yield f"{variant}, seed {seed}, {column}: {old.get(column)} before, {new.get(column)} after"


if __name__ == "__main__":
    sys.exit(main())
