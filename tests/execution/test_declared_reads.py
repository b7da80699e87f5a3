"""Files and variables that plugins read: STALE after a change, an error without a declaration."""

from pathlib import Path
from typing import Any

import pytest

from headtohead import files
from made import case_table, error_line
from made.study import Study

PLUGIN = '''"""A bias and a task whose numbers are in files."""
import json
import multiprocessing
import os
from pathlib import Path

from pydantic import Field

from headtohead.data import ComputedDataset, Example, Task
from headtohead.plugin import Options, Positional, hookimpl

HERE = Path(__file__).parent
POWER = json.loads((HERE / "power.json").read_text())
# change in the worker


class ScaledOptions(Options):
    """The file of the slope."""

    table: str = Field("scale.json", description="a number")


class Scaled(Positional):
    """Minus a power of the distance times a slope."""

    Options = ScaledOptions
    reads = ("{table}", "power.json", "$H_OFFSET")

    def build(self):
        self.slope = json.loads((HERE / self.options.table).read_text())
        self.offset = float(os.environ.get("H_OFFSET", "0"))

    def bias(self, query_positions, key_positions, role, layer):
        distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs()[:, None, None].float()
        return -self.slope * distance ** POWER - self.offset


class Words(ComputedDataset):
    """Copying of words of a file."""

    reads = ("words.txt", "power.json")

    @classmethod
    def task(cls, options, split):
        words = (HERE / "words.txt").read_text().split()

        def draw(random, length):
            text = " ".join(words[number] for number in random.randint(len(words), size=length))
            return Example(text, ((text, text),))

        return Task(("words", "words"), "nobody", draw, lambda length: len(words) ** length)


@hookimpl
def register_positionals():
    return {"scaled": Scaled}


@hookimpl
def register_datasets():
    return {"words": Words}
'''

FILES = {"scale.json": "0.5", "power.json": "1", "words.txt": "a b c d e f g h"}

TINY: dict[str, Any] = {
    "data": {"dataset": "words", "size": 100, "longest": 3},
    "model": {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 8, "dropout": 0.0},
    "train": {"steps": 2, "batch_tokens": 64, "lr": 0.005},
    "evaluate": {"decode": "none"},
}


@pytest.fixture
def study(tmp_path: Path, cache: Path, h2h_here: Any, monkeypatch: pytest.MonkeyPatch) -> Study:
    """A study whose encoding and data depend on files and a variable."""
    content = {"question": "Q?", "base": TINY, "baseline": {"positional": "scaled"}, "seeds": 1}
    content["metrics"] = {"primary": "test/token_accuracy", "report": []}
    made = Study(tmp_path, cache, h2h_here, content)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("H_OFFSET", "0")
    made.write(plugin=PLUGIN)
    return made


def answers(study: Study) -> dict[str, str]:
    """Return what each command prints about the study's run."""
    (run,) = study.directories()
    commands = {"status": ["tiny"], "report": ["tiny"], "list": [], "show": [run.name]}
    return {name: study.h2h(name, *arguments).stdout for name, arguments in commands.items()}


@pytest.mark.slow
def test_a_change_of_what_plugins_read_is_stale_in_every_command(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    study.run()
    assert not [name for name, text in answers(study).items() if "STALE" in text]

    def check(change: str) -> None:
        shown = answers(study)
        assert all("STALE" in text for text in shown.values()), shown
        assert all(
            f"{change} has changed" in text for name, text in shown.items() if name != "list"
        ), shown
        assert files.read_json(study.folder / "reports" / "tiny" / "answer.json")["stale"] != []

    for name, text in {"scale.json": "0.7", "power.json": "2"}.items():
        (study.folder / name).write_text(text)
        check(f"'{name}' read by positional 'scaled'")
        if name == "scale.json":
            line = error_line(study.run(code=2))
            assert line.startswith(
                "1 finished run is STALE: 'scale.json' read by positional 'scaled' has changed; add"
            )
        (study.folder / name).write_text(FILES[name])
    monkeypatch.setenv("H_OFFSET", "1")
    check("$H_OFFSET read by positional 'scaled'")
    assert "$H_OFFSET" in error_line(study.run(code=2))
    monkeypatch.setenv("H_OFFSET", "0")

    before = study.directories()
    (study.folder / "words.txt").write_text("a b c d e f g i")
    check("'words.txt' read by dataset 'words'")
    study.run()
    (new,) = {*study.directories()} - {*before}
    hashes = [files.read_json(run / "run.json")["data"]["data_hash"] for run in (*before, new)]
    assert hashes[0] != hashes[1]
    assert "STALE" not in study.h2h("status", "tiny").stdout


def test_a_file_of_a_dataset_is_a_part_of_the_data_hash_even_if_the_pairs_are_equal(
    study: Study,
) -> None:
    def data_hash() -> str:
        lines = study.h2h("data", "stats", "tiny.yaml").stdout.splitlines()
        return next(line for line in lines if line.startswith("data_hash"))

    before = data_hash()
    (study.folder / "words.txt").write_text("a b c d e f g  h")
    assert data_hash() != before


UNDECLARED = {
    '    reads = ("{table}", "power.json", "$H_OFFSET")': (
        "mine.py: Scaled reads 'power.json'",
        '("power.json",)',
    ),
    '    reads = ("words.txt", "power.json")': (
        "mine.py: Words reads 'power.json'",
        '("power.json",)',
    ),
    '"{table}", ': ("mine.py: Scaled reads 'scale.json'", '("power.json", "$H_OFFSET", "{table}")'),
    ', "$H_OFFSET"': (
        "mine.py: Scaled reads the environment variable $H_OFFSET",
        '("{table}", "power.json", "$H_OFFSET")',
    ),
    '"words.txt"': ("mine.py: Words reads 'words.txt'", '("x.json", "power.json", "words.txt")'),
}


@case_table("declaration", UNDECLARED, default=3)
def test_what_is_not_declared_is_an_error_before_anything_trains(
    study: Study, declaration: str
) -> None:
    what, reads = UNDECLARED[declaration]
    (study.folder / "x.json").write_text("1")
    study.write(
        plugin=PLUGIN.replace(declaration, '"x.json"' if declaration == '"words.txt"' else "", 1)
    )
    line = error_line(study.run(code=2))
    assert f"{what} without declaring it" in line
    assert line.endswith(f"add to the class: reads = {reads}")
    assert not study.experiment.exists()


@case_table("name", ["scale.json", "words.txt", "power.json"], default=2)
def test_a_missing_declared_file_is_one_line(study: Study, name: str) -> None:
    (study.folder / name).unlink()
    line = error_line(study.h2h("plan", "tiny.yaml", code=2))
    if name != "power.json":  # the import fails before its declaration is known
        assert (
            f"declares that it reads '{name}', but '{name}' does not exist; create it, or correct reads"
            in line
        )


IN_WORKER = "if multiprocessing.parent_process() is not None:\n    "
WORKERS = {
    f"{IN_WORKER}os.environ['H_OFFSET'] = '5'": "'$H_OFFSET', which positional 'scaled' reads, has changed since",
    f"{IN_WORKER}(HERE / 'other.txt').read_text()": "mine.py: Scaled reads 'other.txt' without declaring it",
    f"{IN_WORKER}(HERE / 'words.txt').write_text('b c d')": "'words.txt', which dataset 'words' reads, has changed",
}


@case_table("code", WORKERS, default=1)
def test_workers_check_what_plugins_read(study: Study, code: str) -> None:
    (study.folder / "other.txt").write_text("1")
    study.write(plugin=PLUGIN.replace("# change in the worker", code))
    done = study.run(code=2)
    assert WORKERS[code] in done.stderr + done.stdout
    assert not list(study.experiment.glob("*/results.json"))


@pytest.mark.slow
def test_workers_of_a_cluster_check_what_plugins_read(study: Study) -> None:
    pytest.importorskip("submitit", reason="submitit is missing: pip install submitit")
    study.run("--launcher", "slurm", "--launcher-option", "executor=local")
    assert [*study.states().values()] == ["DONE"]
    study.write(
        plugin=PLUGIN.replace(
            "# change in the worker", f"{IN_WORKER}(HERE / 'scale.json').write_text('9')"
        )
    )
    done = study.run(
        "--fresh", "--launcher", "slurm", "--launcher-option", "executor=local", code=2
    )
    assert (
        "'scale.json', which positional 'scaled' reads, has changed since the run was planned"
        in done.stderr
    )
