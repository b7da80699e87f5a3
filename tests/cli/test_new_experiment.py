"""h2h new-experiment: written files are valid as they are, and their comments are valid fields."""

import re
from pathlib import Path

import pytest

from headtohead.config.loading import load_file

PHRASES = "source,target\n" + "".join(f"a{n} b{n},c{n} d{n}\n" for n in range(200))


@pytest.fixture
def folder(tmp_path: Path, h2h) -> Path:
    (tmp_path / "phrases.csv").write_text(PHRASES)
    (tmp_path / "my novel.txt").write_text("To be, or not to be.\n" * 400)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "name", "architecture"),
    [
        (["pairs", "phrases.csv", "--set", "header=true"], "phrases", "encoder-decoder"),
        (["text", "my novel.txt"], "my-novel", "decoder-only"),
        (["reverse", "--set", "size=300"], "reverse", "encoder-decoder"),
        (["text", "--set", "file=my novel.txt"], "text", "decoder-only"),
    ],
)
def test_a_written_file_is_planned_as_it_is(
    folder: Path, h2h, arguments, name, architecture
) -> None:
    expected = f"wrote {name}.yaml\n\nnext:\n  h2h plan {name}.yaml\n  h2h run {name}.yaml\n"
    assert h2h("new-experiment", *arguments) == (0, expected)
    code, planned = h2h("plan", f"{name}.yaml")
    assert (code, "3 variants × 3 seeds = 9" in planned) == (0, True)
    path = folder / f"{name}.yaml"
    text = path.read_text(encoding="utf-8")
    assert ("a GPT: decoder-only" in text) == (architecture == "decoder-only")
    path.write_text(
        re.sub(r"^    # (\w+: )", r"    \1", text, flags=re.MULTILINE), encoding="utf-8"
    )
    assert text.count("    # ") > 3
    load_file(path)
    assert h2h("plan", f"{name}.yaml") == (0, planned)


def test_a_text_without_file_is_downloaded_by_the_experiment(
    folder: Path, h2h, monkeypatch
) -> None:
    monkeypatch.setenv("H2H_CACHE", str(folder / "cache"))
    assert h2h("new-experiment", "text")[0] == 0
    assert '    download: "tinyshakespeare"\n' in (folder / "text.yaml").read_text(encoding="utf-8")
    assert not (folder / "cache").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["pairs"], "dataset 'pairs' needs a file; type h2h new-experiment pairs FILE"),
        (["pairs", "phrases.csv"], "the first line has column names; set data.columns to two of"),
        (["text", "missing.txt"], "file 'missing.txt' does not exist"),
        (["copy", "phrases.csv"], "dataset 'copy' reads no file; type h2h new-experiment copy"),
        (
            ["reverse", "--set", "dataset=copy"],
            "the dataset is an argument; type h2h new-experiment copy, without --set dataset",
        ),
        (["txet"], "unknown dataset 'txet'; did you mean 'text'?"),
        (["text", "phrases.csv", "--set", "blok=3"], "did you mean 'block'?"),
        (["text", "there.txt"], "'there.yaml' already exists; delete or rename it"),
    ],
)
def test_invalid_input_is_one_line_and_writes_nothing(
    folder: Path, h2h, arguments: list[str], reason: str
) -> None:
    for name in ("there.txt", "there.yaml"):
        (folder / name).write_text("To be, or not to be.\n" * 400)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    code, output = h2h("new-experiment", *arguments)
    assert (code, output.count("\n")) == (2, 1)
    assert reason in output
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
