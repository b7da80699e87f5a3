"""``h2h judge`` on files, as a script or a coding agent calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

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
    assert (answer["format"], answer["metric"], answer["exit_code"]) == ("headtohead-judge/1", "accuracy", 0)
    (contrast,) = answer["contrasts"]
    assert (contrast["variant"], contrast["verdict"], contrast["seeds"]) == ("new", "better", 6)
    assert contrast["difference"] == pytest.approx(0.04)
    assert contrast["interval"]["low"] < 0.04 < contrast["interval"]["high"]


def test_the_text_has_heading_table_and_next_look(tmp_path: Path, h2h_here: Command) -> None:
    table(noise=[0.81, 0.80, 0.83, 0.80, 0.81, 0.82]).to_csv(tmp_path / "scores.csv", index=False)
    arguments = ("judge", "scores.csv", "--baseline", "base", "--margin", "0.02", "--looks", "3", "--at-most", "18")
    done = h2h_here(tmp_path, *arguments, "--answer", "answer.json")
    lines = done.stdout.splitlines()
    assert lines[0] == (
        "accuracy, higher is better, margin 0.0200; paired by seed; baseline base: 0.8083 (standard deviation 0.0147, "
        "6 seeds)"
    )
    assert " ".join(lines[2].split()) == (
        "variant seeds mean difference 95 % interval interval at the Holm step Holm p sign-flip p verdict"
    )
    assert lines[3].split()[:4] == ["new", "6", "0.8483", "+0.0400"]
    assert lines[3].endswith("better")
    assert lines[4].endswith("inconclusive")
    assert lines[6] == (
        "looks at 6, 12, 18 seeds; each tests at 2.1 % for 5 % over all looks; the next look needs 6 more seeds per "
        "variant"
    )
    assert done.returncode == 3
    assert json.loads((tmp_path / "answer.json").read_text())["more_seeds"] == 6


def test_markdown_is_the_table_of_a_report(tmp_path: Path, h2h_here: Command) -> None:
    table().to_csv(tmp_path / "scores.csv", index=False)
    done = h2h_here(tmp_path, "judge", "scores.csv", "--baseline", "base", "--format", "markdown")
    assert done.stdout.splitlines()[4].startswith("| new | 6 | 0.8483 | +0.0400 |")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--baseline", "base"), 0),
        (("--baseline", "new"), 1),
        (("--baseline", "new", "--accept", "worse"), 0),
        (("--baseline", "base", "--looks", "2", "--at-most", "20"), 3),
        (("--baseline", "bsae"), 2),
        (("--baseline", "base", "--margin", "0"), 2),
        (("--baseline", "base", "--margin", "nan"), 2),
        (("--baseline", "base", "--accept", "good"), 2),
        (("--baseline", "base", "--experiment", "x"), 2),
        ((), 2),
    ],
)
def test_exit_codes(arguments: tuple[str, ...], code: int, tmp_path: Path, h2h_here: Command) -> None:
    table().to_csv(tmp_path / "scores.csv", index=False)
    assert h2h_here(tmp_path, "judge", "scores.csv", *arguments).returncode == code


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


def test_a_figure_with_another_ending_is_refused(tmp_path: Path, h2h_here: Command) -> None:
    table().to_csv(tmp_path / "scores.csv", index=False)
    done = h2h_here(tmp_path, "judge", "scores.csv", "--baseline", "base", "--figure", "forest.gif")
    assert (done.returncode, done.stderr) == (
        2,
        "h2h: --figure forest.gif: unknown ending '.gif'; use .svg, .pdf, .png\n",
    )


HOSTILE = {
    "missing.csv": None,
    "empty.csv": b"",
    "header.csv": b"variant,seed,accuracy\n",
    "bytes.csv": b"\xff\xfe\x00" * 100,
    "quotes.csv": b'variant,seed,accuracy\n"a,1,2\n',
    "ragged.csv": b"variant,seed,accuracy\na,1,2\na,1,2,3,4\n",
    "twice.csv": b"variant,variant,seed,accuracy\na,b,1,0.5\n",
    "huge.csv": b"variant,seed,accuracy\n" + b"base,1,1e999\nbase,2,0.5\n",
    "list.jsonl": b'{"variant": ["a"], "seed": {"b": 1}, "accuracy": [1]}\n',
    "number.jsonl": b"1\n2\n",
    "broken.jsonl": b'{"variant": "a"\n',
    "null.jsonl": b"null\n",
    "broken.parquet": b"PAR1" * 10,
    "scores.xlsx": b"PK",
    "folder.csv": "folder",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_unusable_file_is_one_line(name: str, tmp_path: Path, h2h_here: Command) -> None:
    content = HOSTILE[name]
    if content == "folder":
        (tmp_path / name).mkdir()
    elif isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    done = h2h_here(tmp_path, "judge", name, "--baseline", "base")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("h2h: ")


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


@pytest.mark.parametrize("option", ["--answer", "--figure"])
def test_an_output_in_a_missing_folder_is_one_line(option: str, tmp_path: Path, h2h_here: Command) -> None:
    table().to_csv(tmp_path / "scores.csv", index=False)
    done = h2h_here(tmp_path, "judge", "scores.csv", "--baseline", "base", option, "none/x.svg")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"h2h: {option} none/x.svg: No such file or directory; choose another file\n"


def test_at_most_without_looks_is_refused(tmp_path: Path, h2h_here: Command) -> None:
    table().to_csv(tmp_path / "scores.csv", index=False)
    done = h2h_here(tmp_path, "judge", "scores.csv", "--baseline", "base", "--at-most", "20")
    assert (done.returncode, done.stderr) == (2, "h2h: --at-most requires --looks N, the number of looks\n")


def test_a_missing_seed_names_the_crashed_run(tmp_path: Path, h2h_here: Command) -> None:
    frame = table()
    frame["State"] = ["finished"] * (len(frame) - 1) + ["crashed"]
    frame.to_csv(tmp_path / "scores.csv", index=False)
    done = h2h_here(tmp_path, "judge", "scores.csv", "--baseline", "base", "--metric", "accuracy")
    assert (done.returncode, done.stderr) == (
        2,
        "h2h: seeds of 'new' and 'base' differ: 5 only in 'base' (left out, as their State is not finished: row 12 "
        "(crashed)); add the missing runs, or compare with --unpaired\n",
    )


def test_few_seeds_and_a_constant_difference_are_warned_of(tmp_path: Path, h2h_here: Command) -> None:
    scores = pd.DataFrame(
        {"variant": ["a", "a", "b", "b"], "seed": [1, 2, 1, 2], "accuracy": [0.5, 0.6, 0.7, 0.8], "steps": 3}
    )
    scores.to_csv(tmp_path / "scores.csv", index=False)
    done = h2h_here(tmp_path, "judge", "scores.csv", "--baseline", "a", "--metric", "accuracy")
    assert done.returncode == 3
    few, constant = done.stderr.splitlines()
    assert few.startswith("warning: 2 seeds: ")
    assert constant.startswith("warning: the difference is the same in every seed for b; ")


def test_metrics_of_reports_are_listed_first(tmp_path: Path, h2h_here: Command) -> None:
    scores = table().assign(flops=1.0, tokens=2.0).rename(columns={"accuracy": "test/accuracy"})
    scores.to_csv(tmp_path / "scores.csv", index=False)
    done = h2h_here(tmp_path, "judge", "scores.csv", "--baseline", "base")
    assert done.stderr == "h2h: several metrics; choose with --metric: test/accuracy, flops, tokens\n"
