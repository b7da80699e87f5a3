"""``h2h new-plugin`` writes a package and prints the next commands, or an error in one line."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from click.testing import CliRunner

from headtohead.cli import main
from headtohead.plugins.registry import current, load_registry
from headtohead.plugins.template import TEMPLATE_FAMILIES, write_package
from made import case_table


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["positionl", "my-idea"], "unknown family 'positionl'; did you mean 'positional'?"),
        (["recipe", "my-idea"], "unknown family 'recipe'; known: attention, dataset, masking, positional"),
        (
            ["positional", "MyIdea"],
            "'MyIdea' is not a valid plugin name; use lower-case letters, digits and single hyphens, such as 'my-idea'",
        ),
        (
            ["positional", "alibi"],
            "positional 'alibi' is already registered by headtohead_plugins.positional.alibi "
            "(headtohead); choose another name",
        ),
        (
            ["dataset", "tatoeba"],
            "dataset 'tatoeba' is already registered by headtohead_plugins.datasets.tatoeba "
            "(headtohead); choose another name",
        ),
        (["masking", "there"], "'there' already exists; choose another name or --folder"),
        (["masking", "new", "--folder", "there"], "'there' already exists; choose another name or --folder"),
        (["masking", "new", "--folder", "file/new"], "cannot write 'file/new': Not a directory"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else "",
)
def test_invalid_input_is_an_error_in_one_line_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "file").write_text("", "utf-8")
    done = CliRunner().invoke(main, ["new-plugin", *arguments])
    assert done.exit_code == 2
    assert done.stderr == f"h2h: {message}\n"
    assert done.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "there"]
    assert list((tmp_path / "there").iterdir()) == []


def test_a_name_registered_by_a_plugin_file_is_an_error(h2h, tmp_path: Path) -> None:
    assert h2h("new-plugin", "masking", "my-mask", "--folder", "first").returncode == 0
    plugin = ["--plugin", "first/h2h_my_mask.py"]
    done = h2h("new-plugin", "masking", "my-mask", "--folder", "second", *plugin)
    assert done.returncode == 2
    assert done.stderr.startswith("h2h: masking 'my-mask' is already registered by first/")
    other_family = h2h("new-plugin", "positional", "my-mask", "--folder", "third", *plugin)
    assert other_family.returncode == 0


def test_written_files_and_next_commands_are_printed(h2h, tmp_path: Path) -> None:
    done = h2h("new-plugin", "positional", "my-idea")
    assert done.returncode == 0, done.stderr
    files = ["h2h_my_idea.py", "test_h2h_my_idea.py", "pyproject.toml", "README.md", "experiment.yaml"]
    assert done.stdout.splitlines() == [
        *(f"wrote my-idea/{name}" for name in files),
        "",
        "next:",
        "  cd my-idea",
        "  pip install -e '.[test]'",
        "  pytest",
    ]
    assert {path.name for path in (tmp_path / "my-idea").iterdir()} == set(files)


@case_table("family", TEMPLATE_FAMILIES, default=5)
@case_table("name", ["options", "none-of-these", "positional", "field", "x"], default=5)
def test_every_valid_name_gives_a_file_that_registers_it(tmp_path: Path, family: str, name: str) -> None:
    files = write_package(family, name, tmp_path / name, current())
    found = load_registry([files[0]]).find(family, name)
    assert found.distribution == "file"
    assert found.entry.summary()
    for path in files:
        if path.suffix == ".py":
            ast.parse(path.read_text("utf-8"))


@pytest.mark.parametrize("family", TEMPLATE_FAMILIES)
def test_a_new_file_is_short_and_cites_a_paper(tmp_path: Path, family: str) -> None:
    text = write_package(family, "mine", tmp_path / "mine", current())[0].read_text("utf-8")
    assert len([line for line in text.splitlines() if line.strip()]) <= 65
    assert "Paper: " in text or "Source: " in text
