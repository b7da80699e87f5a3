"""``headtohead-judge`` on files: unusual tables have a correct verdict, or an error of one line with exit code 2."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest

from headtohead_judge.command import EXIT_CODES
from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.judging import judge
from headtohead_judge.program import NO_DECISION
from headtohead_judge.request import DIRECTIONS, SIZES
from headtohead_judge.score_files import read_score_file
from headtohead_judge.verdicts import Direction, Judgement, Size

Command = Callable[..., "subprocess.CompletedProcess[str]"]
NOISE = (0.81, 0.80, 0.83, 0.80, 0.81, 0.82)
BASE, NEW = (0.80, 0.82, 0.81, 0.79, 0.83, 0.80), (0.84, 0.85, 0.86, 0.83, 0.86, 0.85)
ROWS = [
    (name, seed, score)
    for name, scores in (("base", BASE), ("new", NEW))
    for seed, score in enumerate(scores, 1)
]


def first_and_slow(names: list[str], default: int) -> list[Any]:
    """Return the names of cases; all but the first ``default`` belong to the slow tier."""
    slow = [pytest.param(name, marks=pytest.mark.slow) for name in names[default:]]
    return [*names[:default], *slow]


def lines(*rows: tuple[Any, ...], header: str = "variant,seed,accuracy") -> bytes:
    return "\n".join([header, *(",".join(map(str, row)) for row in rows or ROWS), ""]).encode()


def named(base: str, new: str) -> list[tuple[Any, ...]]:
    return [({"base": base, "new": new}[name], seed, score) for name, seed, score in ROWS]


def changed(row: int, **values: object) -> list[tuple[Any, ...]]:
    """Return the rows with values of the row with this number replaced."""
    columns = ("variant", "seed", "accuracy")
    replaced = tuple(
        values.get(name, value) for name, value in zip(columns, ROWS[row - 1], strict=True)
    )
    return [*ROWS[: row - 1], replaced, *ROWS[row:]]


def scaled(factor: float) -> list[tuple[Any, ...]]:
    return [(name, seed, repr(score * factor)) for name, seed, score in ROWS]


def records(*extra: str, **columns: Callable[[int], object]) -> bytes:
    rows = [
        {
            "variant": name,
            "seed": seed,
            "accuracy": score,
            **{key: make(seed) for key, make in columns.items()},
        }
        for name, seed, score in ROWS
    ]
    return "\n".join([*map(json.dumps, rows), *extra]).encode()


def frame(**others: tuple[float, ...]) -> pd.DataFrame:
    more = [
        (name, seed, score)
        for name, scores in others.items()
        for seed, score in enumerate(scores, 1)
    ]
    return pd.DataFrame([*ROWS, *more], columns=["variant", "seed", "accuracy"])


def parquet(table: pd.DataFrame) -> bytes:
    """Return a Parquet file; empty without pyarrow, an extra of the judge, without which `needs` skips the test."""
    return table.to_parquet(index=False) if find_spec("pyarrow") else b""


def needs(ending: str) -> None:
    if ending == "parquet":
        pytest.importorskip("pyarrow")


NOW = pd.Timestamp("2024-01-01")
GOOD: dict[str, tuple[str, bytes, tuple[str, ...]]] = {
    "plain": ("csv", lines(), ()),
    "byte order mark": ("csv", b"\xef\xbb\xbf" + lines(), ()),
    "Windows line ends and blank lines": ("csv", lines().replace(b"\n", b"\r\n\r\n"), ()),
    "tabs": ("tsv", lines().replace(b",", b"\t"), ()),
    "JSON Lines": ("jsonl", records(), ()),
    "quoted names": ("csv", lines(*named('"ba,se"', '"n""ew"')), ("--baseline", "ba,se")),
    "NA is a name": ("csv", lines(*named("None", "NA")), ("--baseline", "None")),
    "names of numbers": ("csv", lines(*named("0.10", "0.1")), ("--baseline", "0.10")),
    "dates as seeds": ("csv", lines(*((name, f"2024-01-0{seed}", score) for name, seed, score in ROWS)), ()),
    "long seeds": ("csv", lines(*((name, f"{seed:0400}" + "7" * 5000, score) for name, seed, score in ROWS)), ()),
    "a text step of single rows": (
        "csv", lines(*((*row, "last") for row in ROWS), header="variant,seed,accuracy,step"), ("--metric", "accuracy")
    ),
    "scores near the smallest": ("csv", lines(*scaled(1e-50)), ()),
    "unpaired scores near the largest": ("csv", lines(*scaled(1e50)), ("--unpaired",)),
    "other types of Parquet": ("parquet", parquet(
        frame().astype({"accuracy": "float32", "variant": "category", "seed": "int8"})[::-1].assign(at=NOW)), ()),
    "JSON names of numbers": ("jsonl", records().replace(b'"base"', b"0.10").replace(b'"new"', b"0.1"),
                              ("--baseline", "0.10")),
}  # fmt: skip


@pytest.mark.parametrize("name", first_and_slow([*GOOD], 8))
def test_an_unusual_table_has_the_verdict_of_the_plain_table(
    name: str, tmp_path: Path, judge_here: Command
) -> None:
    ending, content, arguments = GOOD[name]
    needs(ending)
    (tmp_path / f"scores.{ending}").write_bytes(content)
    baseline = () if "--baseline" in arguments else ("--baseline", "base")
    done = judge_here(tmp_path, f"scores.{ending}", *baseline, *arguments, "--format", "json")
    assert (
        done.returncode,
        [found["direction"] for found in json.loads(done.stdout)["contrasts"]],
    ) == (0, ["better"])


def test_json_columns_named_as_times_are_numbers(tmp_path: Path, judge_here: Command) -> None:
    # The differences in seconds are far below the margin; as dates in 1970 they are not.
    rows = [
        {
            "variant": name,
            "seed": seed,
            "step_time": 1.7e9 + 0.11 * seed + (name == "new") * 0.01 * seed,
        }
        for name in ("base", "new")
        for seed in range(1, 7)
    ]
    (tmp_path / "scores.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arguments = ("--baseline", "base", "--lower-is-better", "--margin", "1", "--format", "json")
    done = judge_here(tmp_path, "scores.jsonl", *arguments)
    assert [found["size"] for found in json.loads(done.stdout)["contrasts"]] == [
        "by less than the margin"
    ]


REFUSED: dict[str, tuple[str, bytes, str]] = {
    "a short row": ("csv", lines(*ROWS, ("new", 7)), "line 14 has 2 values for 3 columns"),
    "a column twice": ("csv", lines(*((*row, row[2]) for row in ROWS), header="variant,seed,accuracy,accuracy"),
                       "the table has the column 'accuracy' twice; remove or rename one of them"),
    "half a surrogate pair": ("jsonl", records().replace(b'"new"', b'"\\ud800"'), "row 7: 'utf-8' codec can't encode"),
    "an open quote": ("csv", lines(*ROWS, ('"new', 7, 1)), "not a CSV table (unexpected end of data)"),
    "semicolons": ("csv", b"variant;seed;acc\nbase;1;0,8\n", "not a CSV table (semicolons separate its columns; write"),
    "UTF-16": ("csv", lines().decode().encode("utf-16"), "not a CSV table ('utf-8' codec can't decode byte 0xff"),
    "no score": ("csv", lines(*changed(8, accuracy="")), "row 8: 'accuracy' of variant 'new', seed 2 has no number"),
    "many digits": ("csv", lines(*changed(8, accuracy="9" * 100_000 + "x")), "seed 2 is not a finite number: '9"),
    "huge scores": ("csv", lines(*scaled(1e308)), "seed 1 is 8e+307; scores must be 0 or between 1e-60 and 1e+60 in"),
    "no variant": ("csv", lines(*changed(8, variant="")), "row 8 has no variant; every run needs one"),
    "a seed twice": ("csv", lines(*changed(8, seed="1.0")), "variant 'new' has seed 1 twice (rows 7, 8)"),
    "a copied run": ("csv", lines(*((variant, seed, 0.5 + 0.01 * step + (variant == "base") * seed / 100, step)
                                    for variant in ("base", "new") for seed in range(6) for step in (1, 2)),
                                  header="variant,seed,accuracy,epoch"),
                     "variant 'new': seeds 0 and 1 have the same values at all 2 steps; a copied run is no further"),
    "a text step": ("csv", lines(*((*row, step) for row in ROWS for step in (1, "ten")),
                                 header="variant,seed,accuracy,epoch"), "row 2: 'epoch' is not a finite number: 'ten'"),
    "a column per variant": ("csv", b"seed,base,new\n1,0.8,0.9\n2,0.7,0.8\n",
                             "no column 'variant'; columns: seed, base, new; name it with --variant, or give the table "
                             "one row per variant and seed, with the columns variant, seed and the metric"),
    "a column per seed": ("csv", b"variant,1,2\nbase,0.8,0.9\nnew,0.7,0.8\n",
                          "no column 'seed'; columns: variant, 1, 2; name it with --seed, or give the table one row"),
    "no numbers": ("csv", b"variant,seed\nbase,1\n", "which are plain numbers such as 0.31; columns: variant, seed"),
    "a JSON key twice": ("jsonl", records('{"variant": "new", "seed": 7, "seed": 8}'), "row 13: the key 'seed' twice"),
    "a missing JSON key": ("jsonl", records('{"variant": "new", "seed": 7}'), "row 13: 'accuracy' of variant 'new'"),
    "JSON true as score": ("jsonl", records('{"variant": "new", "seed": 7, "accuracy": true}'),
                           "seed 7 is not a finite number: 'True'"),
    "a JSON list as score": ("jsonl", records('{"variant": "new", "seed": 7, "accuracy": [1, 2]}'),
                             "seed 7 is not a finite number: '["),
    "a JSON array": ("jsonl", b"[1, 2]\n", "not a JSON Lines table (row 1 is not an object)"),
    "an xlsx file": ("xlsx", b"PK", "unknown ending"),
    "a broken Parquet file": ("parquet", b"PAR1" * 10, "scores.parquet cannot be read"),
    "a JSON file": ("json", b"[]", "unknown ending '.json'; use .csv, .jsonl, .ndjson, .parquet, .tsv"),
}  # fmt: skip


@pytest.mark.parametrize("name", first_and_slow([*REFUSED], 16))
def test_an_unusable_table_is_an_error_of_one_line(
    name: str, tmp_path: Path, judge_here: Command
) -> None:
    ending, content, message = REFUSED[name]
    needs(ending)
    (tmp_path / f"scores.{ending}").write_bytes(content)
    step = ("--step", "epoch") if b"epoch" in content else ()
    done = judge_here(
        tmp_path, f"scores.{ending}", "--baseline", "base", "--higher-is-better", *step
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert message in done.stderr
    assert len(done.stderr) < 1000


def test_equal_whole_numbers_are_one_seed_and_other_texts_are_unchanged() -> None:
    seeds = ["007", "8.0", "-1", "1.05", "1e3", "run01"]
    tables = [frame().query("variant == @name").assign(seed=seeds) for name in ("base", "new")]
    judged = judge(pd.concat(tables), baseline="base")
    assert [*judged.variants[0].by_seed] == ["7", "8", "-1", "1.05", "1e3", "run01"]


def test_missing_values_of_pandas_are_missing() -> None:
    table = frame().astype({"accuracy": "Float64"})
    table.loc[7, "accuracy"] = pd.NA
    with pytest.raises(
        HeadToHeadError, match="row 8: 'accuracy' of variant 'new', seed 2 has no number"
    ):
        judge(table, baseline="base")
    with pytest.raises(HeadToHeadError, match="row 7 has no variant"):
        judge(
            frame().astype({"variant": "string"}).replace({"variant": {"new": pd.NA}}),
            baseline="base",
        )


def test_twenty_thousand_seeds_take_linear_time() -> None:
    generator = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "variant": np.repeat(["base", "new"], 20_000),
            "seed": np.tile(np.arange(20_000), 2),
            "accuracy": generator.normal(0.8, 0.01, size=40_000).round(4),
        }
    )
    began = time.process_time()
    judged = judge(table, baseline="base")
    assert time.process_time() - began < 4
    assert judged.warnings == ()


LARGE: dict[str, tuple[bytes, str]] = {
    "columns": (
        json.dumps(
            {"variant": "a", "seed": 1} | {f"k{number}": number for number in range(20_000)}
        ).encode(),
        "scores.jsonl: not a JSON Lines table (20,002 columns, more than 10,000; it needs those of variant, seed and",
    ),
    "letters": (
        json.dumps({"variant": "n" * 10**7, "seed": 1, "accuracy": 0.5}).encode(),
        "scores.jsonl: row 1 has a value of 10,000,000 characters, more than 131,072; remove it",
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_table_that_would_take_long_is_refused(name: str, tmp_path: Path) -> None:
    content, message = LARGE[name]
    (tmp_path / "scores.jsonl").write_bytes(content)
    with pytest.raises(HeadToHeadError, match=re.escape(message)):
        read_score_file(tmp_path / "scores.jsonl")


@pytest.mark.slow
@pytest.mark.timed
def test_parquet_with_flipped_bits_never_ends_the_command(
    tmp_path: Path, judge_here: Command
) -> None:
    needs("parquet")
    generator = np.random.default_rng(0)
    content = parquet(frame())
    for _ in range(3):
        damaged = bytearray(content)
        for position in generator.integers(len(damaged), size=3):
            damaged[position] ^= 1 << int(generator.integers(8))
        (tmp_path / "scores.parquet").write_bytes(damaged)
        done = judge_here(tmp_path, "scores.parquet", "--baseline", "base", "--higher-is-better")
        assert done.returncode in (0, 1, 2, 3)
        assert done.returncode != 2 or (done.stdout, done.stderr.count("\n")) == ("", 1)


def test_hidden_characters_of_a_file_are_escaped(tmp_path: Path, judge_here: Command) -> None:
    (tmp_path / "scores.csv").write_bytes(lines(*named("base", "new\x1b[31m\u202e")))
    done = judge_here(tmp_path, "scores.csv", "--baseline", "base")
    assert "\x1b" not in done.stdout + done.stderr
    assert "new\\x1b[31m\\u202e" in done.stdout


@pytest.mark.slow
@pytest.mark.timed
def test_ten_thousand_rows_take_a_second_after_imports_and_no_training_libraries(
    tmp_path: Path,
) -> None:
    generator = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "variant": np.repeat([f"v{number}" for number in range(1000)], 10),
            "seed": np.tile(np.arange(10), 1000),
            "accuracy": generator.uniform(size=10_000),
        }
    )
    table.to_csv(tmp_path / "scores.csv", index=False)
    code = (
        "import sys, time, headtohead_judge.judging, headtohead_judge.text\n"
        "from headtohead_judge.__main__ import entry; began = time.process_time()\n"
        "sys.argv[1:] = ['scores.csv', '--baseline', 'v0']\n"
        "try: entry()\n"
        "finally: print(time.process_time() - began, *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    seconds, *modules = done.stderr.splitlines()[-1].split()
    assert done.returncode in (1, 3)
    assert len(done.stdout.splitlines()) == 1006  # with the lines of the test and the exit code
    assert not {
        "torch",
        "mlflow",
        "pydantic",
        "matplotlib",
        "rich",
        "sacrebleu",
        "scipy.stats",
    } & set(modules)
    assert float(seconds) < 1


def test_the_text_has_a_row_per_variant_and_the_answer_the_next_look(
    tmp_path: Path, judge_here: Command
) -> None:
    frame(noise=NOISE).to_csv(tmp_path / "scores.csv", index=False)
    arguments = (
        "scores.csv",
        "--baseline",
        "base",
        "--margin",
        "0.02",
        "--looks",
        "3",
        "--at-most",
        "18",
    )
    done = judge_here(tmp_path, *arguments, "--answer", "answer.json")
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line}
    assert rows["new"][:3] == ["new", "0.8483", "+0.0400"]
    assert " ".join(rows["new"]).endswith(" better by more than the margin")
    assert re.search(
        r"no difference shown; could be up to 0\.\d+ better or 0\.\d+ worse$",
        " ".join(rows["noise"]),
    )
    assert "Holm" not in done.stdout
    assert done.returncode == 3
    assert json.loads((tmp_path / "answer.json").read_text())["more_seeds"] == 6


def test_the_table_of_exit_codes_is_printed_as_in_the_guide_and_is_that_of_the_verdicts() -> None:
    page = (
        (Path(__file__).parents[2] / "docs" / "how-to" / "judge.md")
        .read_text(encoding="utf-8")
        .replace("`", "")
    )
    tables = []
    for text in EXIT_CODES.replace("\b", "").strip().split("\n\n"):
        heading, *lines = text.strip().splitlines()
        header = " | ".join(re.split("  +", heading))
        table = page.split(f"| {header} |\n|---|---|\n")[1].split("\n\n")[0]
        rows = [tuple(line.strip("| ").split(" | ")) for line in table.splitlines()]
        assert rows == [tuple(re.split("  +", line)) for line in lines]
        tables.append(rows)
    rows, decisions = tables
    assert dict(decisions)["needs more seeds"] == str(NO_DECISION)
    code_of = {verdict: int(code) for verdict, code in rows}
    for verdict in (*DIRECTIONS, *SIZES):
        direction, size = verdict, None
        for prefix in ("better", "worse"):
            if verdict.startswith(f"{prefix} by "):
                direction, size = prefix, verdict.removeprefix(f"{prefix} ")
        found = Judgement(direction, size)
        assert found.verdict == verdict
        row = "worse, with any size" if direction == "worse" else "any other"
        assert found.exit_code(()) == code_of[row]
        assert found.exit_code((direction,)) == found.exit_code((verdict,)) == 0
    assert code_of["in --accept"] == 0


def test_every_word_of_a_verdict_can_be_accepted() -> None:
    """A metric of the command has a direction and no stated ends, and no contrast is the same by construction."""
    never_printed = {"larger", "smaller", "same by construction", "cannot tell"}
    directions = {*get_args(Direction)} - never_printed
    sizes = {f"{direction} {size}" for direction in ("better", "worse") for size in get_args(Size)}
    assert ({*DIRECTIONS}, {*SIZES}) == (directions, sizes)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--baseline", "base"), 0),
        (("--baseline", "base", "--format", "markdown"), 0),
        (("--baseline", "new"), 1),
        (("--baseline", "new", "--accept", "worse"), 0),
        (("--baseline", "new", "--margin", "0.5", "--accept", "worse by less than the margin"), 0),
        (
            ("--baseline", "new", "--margin", "0.001", "--accept", "worse by less than the margin"),
            1,
        ),
        (("--baseline", "base", "--looks", "2", "--at-most", "20"), 3),
        (("--baseline", "base", "--candidate", "mid", "--ledger", "ledger.jsonl"), 3),
        (("--baseline", "bsae"), 2),
        (("--baseline", "base", "--margin", "0"), 2),
        (("--baseline", "base", "--accept", "good"), 2),
        (("--baseline", "base", "--accept", "equivalent"), 2),
        (("--baseline", "base", "--experiment", "x"), 2),
        (("--baseline", "base", "--answer", "none/x.json"), 2),
        (("--baseline", "base", "--answer", "scores.csv"), 2),
        (("--baseline", "base", "--at-most", "20"), 2),
        ((), 2),
    ],
)
def test_exit_codes(
    arguments: tuple[str, ...], code: int, tmp_path: Path, judge_here: Command
) -> None:
    better = (
        0.81,
        0.85,
        0.825,
        0.82,
        0.83,
        0.82,
    )  # p 0.015: better at 5 %, not at the level of a ledger
    (frame(mid=better) if "mid" in arguments else frame()).to_csv(
        tmp_path / "scores.csv", index=False
    )
    done = judge_here(tmp_path, "scores.csv", *arguments)
    assert done.returncode == code
    assert code != 2 or (done.stdout, done.stderr.count("\n")) == ("", 1)
    if code != 2 and "--ledger" not in arguments:
        assert done.stdout.splitlines()[-1].startswith(f"exit code {code}: ")


def test_a_ledger_needs_six_seeds_and_the_incumbent_trained_again(
    tmp_path: Path, judge_here: Command
) -> None:
    few = frame().query("seed < 6")
    few.to_csv(tmp_path / "few.csv", index=False)
    frame().to_csv(tmp_path / "first.csv", index=False)
    arguments = ("--ledger", "ledger.jsonl")
    done = judge_here(tmp_path, "few.csv", "--baseline", "base", *arguments)
    assert (done.returncode, done.stdout) == (
        4,
        "next: run 1 more seed of both new and base, side by side\n",
    )
    assert done.stderr == (
        "no decision: each side needs at least 6 seeds, but the table has fewer: 'base' 5, 'new' 5; train more seeds\n"
    )
    assert not (tmp_path / "ledger.jsonl").exists()
    assert judge_here(tmp_path, "first.csv", "--baseline", "base", *arguments).returncode == 0
    second = frame(other=(0.90, 0.87, 0.88, 0.91, 0.89, 0.90))
    second.query("variant == 'other'").to_csv(tmp_path / "alone.csv", index=False)
    second.query("variant != 'base'").to_csv(tmp_path / "stored.csv", index=False)
    for name, message in (
        ("alone.csv", "a ledger needs the incumbent trained again beside each candidate"),
        (
            "stored.csv",
            "6 scores of the incumbent 'new' are those of an earlier decision; train it",
        ),
    ):
        done = judge_here(tmp_path, name, *arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert message in done.stderr


def test_a_repeated_command_gives_the_decision_of_the_ledger_again(
    tmp_path: Path, judge_here: Command
) -> None:
    frame().to_csv(tmp_path / "scores.csv", index=False)
    arguments = ("scores.csv", "--baseline", "base", "--answer", "answer.json", "--ledger")
    assert (
        "choose another folder\n"
        in judge_here(tmp_path, *arguments, "scores.csv/ledger.jsonl").stderr
    )
    assert not (tmp_path / "answer.json").exists()
    done = judge_here(tmp_path, *arguments, "ledger.jsonl")
    ledger, answer = (tmp_path / "ledger.jsonl").read_text(), (tmp_path / "answer.json").read_text()
    (contrast,) = json.loads(answer)["contrasts"]
    assert (json.loads(answer)["decision"]["kept"], contrast["difference"]) == (
        True,
        pytest.approx(0.04),
    )
    assert contrast["interval"]["low"] < 0.04 < contrast["interval"]["high"]
    again = judge_here(tmp_path, *arguments, "ledger.jsonl")
    assert (again.stdout, again.returncode) == (done.stdout, 0)
    assert "warning: ledger.jsonl has this decision already" in again.stderr
    assert (ledger, answer) == (
        (tmp_path / "ledger.jsonl").read_text(),
        (tmp_path / "answer.json").read_text(),
    )
    frame()[::-1].replace(0.86, 0.87).to_csv(tmp_path / "scores.csv", index=False)
    assert judge_here(tmp_path, *arguments, "ledger.jsonl").returncode == 2


def test_no_output_is_an_input_or_another_output(tmp_path: Path, judge_here: Command) -> None:
    frame().to_csv(tmp_path / "scores.csv", index=False)
    frame().replace({"variant": {"new": "headtohead-judge"}}).to_csv(
        tmp_path / "named.csv", index=False
    )
    judge_here(tmp_path, "scores.csv", "--baseline", "base", "--ledger", "old.jsonl")
    (tmp_path / "hard.json").hardlink_to(tmp_path / "old.jsonl")
    (tmp_path / "soft.json").symlink_to("new.jsonl")
    (tmp_path / "here").symlink_to(".")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    ledgers = {
        "new.jsonl": ["new.jsonl", "./here/new.jsonl", "soft.json", ".new.jsonl.lock"],
        "old.jsonl": ["hard.json"],
    }
    for ledger, answers in ledgers.items():
        for answer in answers:
            done = judge_here(
                tmp_path,
                "scores.csv",
                "--baseline",
                "base",
                "--ledger",
                ledger,
                "--answer",
                answer,
            )
            assert (done.returncode, done.stdout) == (2, "")
            assert f"'{answer.removeprefix('./')}' of --answer is the file of " in done.stderr
    for answer, message in (
        (
            "here/scores.csv",
            "'here/scores.csv' of --answer is a file with scores; choose another file",
        ),
        (
            "named.csv",
            "'named.csv' exists and was not written by this command; choose another file with --answer",
        ),
    ):
        done = judge_here(tmp_path, "scores.csv", "--baseline", "base", "--answer", answer)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}


def test_an_output_is_no_result_of_the_folder_that_is_judged(
    tmp_path: Path, judge_here: Command
) -> None:
    for variant, loss in (("a", 3.2), ("b", 3.1)):
        (tmp_path / variant).mkdir()
        for seed in range(1, 4):
            (tmp_path / variant / f"{seed}.txt").write_text(
                f"step:9/9 val_loss:{loss + 0.01 * seed**2}\n"
            )
    arguments = (".", "--baseline", "a", "--metric", "val_loss", "--answer")
    done = judge_here(tmp_path, *arguments, "b/1.txt")
    assert (done.returncode, "'b/1.txt' of --answer is a file with scores" in done.stderr) == (
        2,
        True,
    )
    done = judge_here(tmp_path, *arguments, "submission-2.json")
    message = "'submission-2.json' of --answer would be read as a result of .; choose a file outside of this folder"
    assert (done.returncode, message in done.stderr) == (2, True)
    assert judge_here(tmp_path, *arguments, "answer.json").returncode in (0, 3)
