"""``h2h judge`` on files, as a script or a coding agent calls it."""

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headtohead.cli.judge import EXIT_CODES
from headtohead.statistics.paired_tests import Interval
from headtohead.statistics.verdicts import Judgement, SizeTest
from made import case_table

Command = Callable[..., "subprocess.CompletedProcess[str]"]
SCORES = {"base": [0.80, 0.82, 0.81, 0.79, 0.83, 0.80], "new": [0.84, 0.85, 0.86, 0.83, 0.86, 0.85]}


def table(**others: list[float]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"variant": variant, "seed": seed, "accuracy": score}
            for variant, scores in (SCORES | others).items()
            for seed, score in enumerate(scores)
        ]
    )


WRITERS: dict[str, Callable[[pd.DataFrame, Path], object]] = {
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    "parquet": lambda frame, path: frame.to_parquet(path, index=False),
}


@pytest.mark.parametrize("ending", WRITERS)
def test_every_format_gives_the_same_answer(ending: str, tmp_path: Path, h2h_here: Command) -> None:
    WRITERS[ending](table(), tmp_path / f"scores.{ending}")
    done = h2h_here(tmp_path, "judge", f"scores.{ending}", "--baseline", "base", "--format", "json")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    answer = json.loads(done.stdout)
    assert (answer["format"], answer["metric"], answer["exit_code"]) == ("headtohead-judge/2", "accuracy", 0)
    (contrast,) = answer["contrasts"]
    assert (contrast["variant"], contrast["direction"], contrast["seeds"]) == ("new", "better", 6)
    assert contrast["difference"] == pytest.approx(0.04)
    assert contrast["interval"]["low"] < 0.04 < contrast["interval"]["high"]


@case_table("ending", ["svg", "pdf", "png"], default=1)
def test_the_figure_has_a_row_per_variant(ending: str, tmp_path: Path, h2h_here: Command) -> None:
    table(noise=[0.81, 0.80, 0.83, 0.80, 0.81, 0.82]).to_csv(tmp_path / "scores.csv", index=False)
    name = f"forest.{ending}"
    done = h2h_here(tmp_path, "judge", "scores.csv", "--baseline", "base", "--figure", name)
    assert done.returncode == 3
    content = (tmp_path / name).read_bytes()
    assert content.startswith({"svg": b"<svg", "pdf": b"%PDF", "png": b"\x89PNG"}[ending])
    if ending == "svg":
        assert content.index(b"new against base") < content.index(b"noise against base")
        assert b"seed 5: +0.0500" in content


def test_hidden_characters_of_a_file_are_escaped(tmp_path: Path, h2h_here: Command) -> None:
    frame = table()
    frame["variant"] = frame["variant"].replace("new", "new\x1b[31m\u202e")
    frame.to_csv(tmp_path / "scores.csv", index=False)
    done = h2h_here(tmp_path, "judge", "scores.csv", "--baseline", "base")
    assert "\x1b" not in done.stdout + done.stderr
    assert "new\\x1b[31m\\u202e" in done.stdout


@pytest.mark.slow
@pytest.mark.timed
def test_ten_thousand_rows_take_a_second_after_imports_and_no_training_libraries(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "variant": np.repeat([f"v{number}" for number in range(1000)], 10),
            "seed": np.tile(np.arange(10), 1000),
            "accuracy": generator.uniform(size=10_000),
        }
    )
    frame.to_csv(tmp_path / "scores.csv", index=False)
    code = (
        "import sys, time, headtohead.analysis.judge, headtohead.cli.judge, headtohead.report.judge\n"
        "from headtohead.cli import main; began = time.process_time()\n"
        "try: main(['judge', 'scores.csv', '--baseline', 'v0'])\n"
        "finally: print(time.process_time() - began, *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    seconds, *modules = done.stderr.splitlines()[-1].split()
    assert done.returncode in (1, 3)
    assert len(done.stdout.splitlines()) == 1002
    assert not {"torch", "mlflow", "pydantic", "matplotlib", "rich", "sacrebleu", "scipy.stats"} & set(modules)
    assert float(seconds) < 1


def test_the_text_has_a_row_per_variant_and_the_answer_the_next_look(tmp_path: Path, h2h_here: Command) -> None:
    table(noise=[0.81, 0.80, 0.83, 0.80, 0.81, 0.82]).to_csv(tmp_path / "scores.csv", index=False)
    arguments = ("judge", "scores.csv", "--baseline", "base", "--margin", "0.02", "--looks", "3", "--at-most", "18")
    done = h2h_here(tmp_path, *arguments, "--answer", "answer.json")
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line}
    assert (rows["new"][:4], rows["new"][-3:]) == (["new", "6", "0.8483", "+0.0400"], ["better,", "beyond", "0"])
    assert rows["noise"][-3] == "undetected,"
    assert rows["noise"][-1] == "3"
    assert done.returncode == 3
    assert json.loads((tmp_path / "answer.json").read_text())["more_seeds"] == 6


def test_the_table_of_exit_codes_is_printed_as_in_the_guide_and_is_that_of_the_verdicts() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "judge.md").read_text(encoding="utf-8").replace("`", "")
    table = page.split("| verdict of a variant | exit code |\n|---|---|\n")[1].split("\n\n")[0]
    rows = [tuple(line.strip("| ").split(" | ")) for line in table.splitlines()]
    printed = [re.split("  +", line) for line in EXIT_CODES.strip().splitlines()[2:]]
    assert [list(row) for row in rows] == printed
    code_of = {verdict.partition(" (")[0]: code for verdict, code in rows}
    for direction, size in itertools.product(("better", "worse", "undetected"), ("within", "beyond", "unclear")):
        inside = {"within": 0.1, "beyond": 9.0, "unclear": 0.6}[size]
        test = SizeTest(0.5, 0.01 if size == "within" else 1.0, Interval(0.9, inside - 0.2, inside))
        found = Judgement(direction, size_test=test)
        row = "worse, with any size" if direction == "worse" else f"{direction}, {size}"
        assert found.size == size
        assert found.exit_code(()) == int(code_of.get(row, code_of["any other"])[-1])
        assert (
            found.exit_code((direction,)) == found.exit_code((f"{direction}, {size}",)) == int(code_of["in --accept"])
        )


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--baseline", "base"), 0),
        (("--baseline", "base", "--format", "markdown"), 0),
        (("--baseline", "new"), 1),
        (("--baseline", "new", "--accept", "worse"), 0),
        (("--baseline", "new", "--margin", "0.5", "--accept", "worse,within"), 0),
        (("--baseline", "new", "--margin", "0.001", "--accept", "worse,within"), 1),
        (("--baseline", "base", "--looks", "2", "--at-most", "20"), 3),
        (("--baseline", "bsae"), 2),
        (("--baseline", "base", "--margin", "0"), 2),
        (("--baseline", "base", "--accept", "good"), 2),
        (("--baseline", "base", "--experiment", "x"), 2),
        (("--baseline", "base", "--figure", "forest.gif"), 2),
        (("--baseline", "base", "--answer", "none/x.json"), 2),
        (("--baseline", "base", "--at-most", "20"), 2),
        ((), 2),
    ],
)
def test_exit_codes(arguments: tuple[str, ...], code: int, tmp_path: Path, h2h_here: Command) -> None:
    table().to_csv(tmp_path / "scores.csv", index=False)
    done = h2h_here(tmp_path, "judge", "scores.csv", *arguments)
    assert done.returncode == code
    assert code != 2 or (done.stdout, done.stderr.count("\n")) == ("", 1)
