"""The plan of the tutorial is what `h2h plan` prints; plugins of README and how-to pages work."""

import csv
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from headtohead.cli import main
from headtohead.testing import INVARIANTS

ROOT = Path(__file__).parents[2]


def blocks(page: str, kind: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def spaced(text: str) -> list[str]:
    """Return the lines of a text, every run of spaces being one space."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_the_plan_of_the_tutorial_is_what_the_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("H2H_CACHE", str(tmp_path / "cache"))
    (tmp_path / "order.yaml").write_text(blocks("docs/tutorial.md", "yaml")[0], encoding="utf-8")
    shown = spaced(blocks("docs/tutorial.md", "console")[0])
    assert shown.pop(0) == "$ h2h plan order.yaml"
    planned = CliRunner().invoke(main, ["plan", "order.yaml"])
    assert planned.exit_code == 0, planned.output
    depends_on_the_machine = ("project: ", "time: ", "runs: ")
    expected = [line for line in shown if not line.startswith(depends_on_the_machine)]
    assert [line for line in expected if line not in spaced(planned.output)] == []
    assert len(expected) >= 7


@pytest.mark.slow
@pytest.mark.usefixtures("fewest")
def test_the_plugin_of_the_readme_passes_the_command_of_the_readme_with_every_invariant(tmp_path: Path) -> None:
    (code,) = blocks("README.md", "python")
    path = tmp_path / "slope.py"
    path.write_text(code, encoding="utf-8")
    arguments = ["check", "positional/trained-slope", "--plugin", str(path)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    rows = [line.split(maxsplit=1) for line in done.output.splitlines() if line]
    found = {name: " ".join(rest.split()) for name, *rests in rows for rest in rests}
    assert {invariant.name for invariant in INVARIANTS} <= found.keys()
    assert found["parameter-count"].startswith("holds 0 difference between the closed form and ")
    assert found["source-mirror"].startswith("holds ")
    assert found["batch-of-one"].startswith("holds ")


def test_the_dataset_plugin_of_the_page_reads_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("H2H_CACHE", str(tmp_path / "cache"))
    (code,) = blocks("docs/how-to/own-data.md", "python")
    (phrases,) = blocks("docs/how-to/own-data.md", "text")
    (tmp_path / "phrasebook.py").write_text(code, encoding="utf-8")
    (tmp_path / "phrases.csv").write_text(phrases, encoding="utf-8")
    rows = list(csv.reader(phrases.splitlines()))[1:]
    (tmp_path / "phrases.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    plugin = ["phrasebook", "--plugin", "phrasebook.py", "--set", "file=phrases.tsv"]
    table = ["pairs", "--set", "file=phrases.csv", "--set", "columns=[English, French]"]
    for dataset in (plugin, table):
        shown = CliRunner().invoke(main, ["data", "stats", *dataset, "--set", "valid=1", "--set", "test=1"])
        assert shown.exit_code == 0, shown.output
        assert "3: train 1, valid 1, test 1" in shown.output
