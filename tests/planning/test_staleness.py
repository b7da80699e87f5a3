"""What has changed since an experiment was trained: fields of its file and sources of its plugins."""

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headtohead.api import plan
from headtohead.planning.record import experiment_record
from headtohead.plugins.registry import use_files
from headtohead.plugins.sources import module_file, source_file, source_name, source_sha256
from headtohead.storage.experiment import ExperimentDirectory
from headtohead.storage.staleness import stale_changes
from made.fake_study import Study, edit, write_study

FILE = """question: Does it matter?
base:
  train: {lr: 0.001, steps: 4}
seeds: 2
"""


@pytest.fixture
def study(tmp_path: Path) -> Callable[..., ExperimentDirectory]:
    """Write an experiment with a finished run that used the given plugins; return it."""

    def write(*plugins: dict[str, Any]) -> ExperimentDirectory:
        folder = write_study(
            tmp_path / "runs", Study(axes={"positional": ["none"]}, seeds=(1,), maps=False)
        )
        edit(folder, file="study.yaml", text=FILE)
        edit(next(folder.glob("*/run.json")), plugins=plugins)
        return ExperimentDirectory.read(folder)

    return write


def plugin(source: str | None, content: bytes) -> dict[str, Any]:
    sha256 = hashlib.sha256(content).hexdigest()
    origin = {
        "module": "near.py",
        "distribution": "file",
        "version": "-",
        "source_sha256": sha256,
        "source": source,
    }
    return {"family": "positional", "name": "near", **origin}


CHANGED = {
    FILE: (),
    FILE.replace("matter?", "matter at all?  # a comment"): (),
    FILE.replace("train: {lr: 0.001, steps: 4}", "train.steps: 4\n  train.lr: 1e-3"): (),
    FILE.replace("0.001", "0.01"): ("base.train.lr was 0.001, is now 0.01",),
    FILE + "design: [{product: {positional: [none]}}]\n": ("design has changed",),
    "question: Q?\nmargin: 0.1\nmatch: flops\n": (
        "base.train.lr was 0.001, is now nothing",
        "base.train.steps was 4, is now nothing",
        "seeds was 2, is now nothing",
        "2 more fields changed",
    ),
    "question: Q?\nmargin: 0.1\n": (
        "base.train.lr was 0.001, is now nothing",
        "base.train.steps was 4, is now nothing",
        "seeds was 2, is now nothing",
        "1 more field changed",
    ),
    "base: {": ("the experiment file is invalid",),
}


@pytest.mark.parametrize("text", CHANGED)
def test_changed_fields_of_the_experiment_file_are_named(
    study: Any, tmp_path: Path, text: str
) -> None:
    experiment = study()
    (tmp_path / "study.yaml").write_text(text)
    assert stale_changes(experiment) == CHANGED[text]


def test_the_file_of_the_command_precedes_the_recorded_file(study: Any, tmp_path: Path) -> None:
    experiment = study()
    (tmp_path / "other.yaml").write_text(FILE.replace("seeds: 2", "seeds: 3"))
    assert stale_changes(experiment, tmp_path / "other.yaml") == ("seeds was 2, is now 3",)


def test_missing_files_count_as_unchanged(study: Any) -> None:
    assert (
        stale_changes(study(plugin("./near.py", b"old"), plugin("no_such_module.near", b"old")))
        == ()
    )


@pytest.mark.parametrize("absolute", [False, True])
def test_a_changed_plugin_file_is_named(study: Any, tmp_path: Path, absolute: bool) -> None:
    file = tmp_path / "near.py"
    experiment = study(plugin(str(file) if absolute else "./near.py", b"old"))
    file.write_bytes(b"old")
    assert stale_changes(experiment) == ()
    file.write_bytes(b"new")
    assert stale_changes(experiment) == ("positional 'near' has changed",)


IMPORTS = {
    "import near_layers": "near_layers.py",
    "from . import near_layers": "near_layers.py",
    "from .near_layers import scale": "near_layers.py",
    "def late():\n    from near_parts.near_layers import scale": "near_parts/near_layers.py",
    "import near_layers, os\nimport torch, pluggy": "near_layers.py",
}


@pytest.mark.parametrize("line", IMPORTS)
def test_a_changed_module_that_a_plugin_imports_is_named(
    study: Any, tmp_path: Path, line: str
) -> None:
    file, helper = tmp_path / "near.py", tmp_path / IMPORTS[line]
    file.write_text(line)
    helper.parent.mkdir(exist_ok=True)
    helper.write_text("from deeper import scale")
    (tmp_path / "deeper.py").write_text("scale = 1")
    (helper.parent / "deeper.py").write_text("scale = 1")
    experiment = study(plugin("./near.py", b"") | {"source_sha256": source_sha256(file)})
    assert stale_changes(experiment) == ()
    (helper.parent / "deeper.py").write_text("scale = 2")
    assert stale_changes(experiment) == ("positional 'near' has changed",)


def test_a_changed_data_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.tsv").write_text("".join(f"a b {n}\tc {n}\n" for n in range(30)))
    Path("study.yaml").write_text(
        "question: Does it matter?\nbase: {train.steps: 4, data: {dataset: pairs, file: mine.tsv, valid: 3, test: 3}}\n"
    )
    record = experiment_record(plan("study.yaml"))
    write_study(tmp_path / "runs", Study(axes={"positional": ["none"]}, seeds=(1,), maps=False))
    folder = next((tmp_path / "runs").iterdir())
    edit(folder, data_files=record.data_files)
    experiment = ExperimentDirectory.read(folder)
    assert stale_changes(experiment) == ()
    Path("mine.tsv").write_text("a\tb\n" * 30)
    assert stale_changes(experiment) == ("data file 'mine.tsv' has changed",)


def test_a_changed_installed_module_is_named(study: Any) -> None:
    name = "headtohead_plugins.positional.none"
    file = module_file(name)
    assert file is not None
    assert stale_changes(study(plugin(name, b"old"))) == ("positional 'near' has changed",)


@pytest.mark.usefixtures("own_registry")
def test_the_source_of_every_entry_is_found_by_its_name(tmp_path: Path) -> None:
    near = tmp_path / "near.py"
    near.write_text(
        "from headtohead.plugin import Positional, hookimpl\n\nclass Near(Positional):\n    pass\n\n"
        "@hookimpl\ndef register_positionals():\n    return {'near': Near}\n"
    )
    for entry in use_files([near]).all():
        name = source_name(entry.entry, tmp_path)
        assert name == ("./near.py" if entry.name == "near" else entry.entry.__module__)
        file = source_file(name, tmp_path)
        assert file is not None
        assert source_sha256(file) == entry.source_sha256


@pytest.mark.parametrize(
    "body",
    [
        '    """Near."""\n',
        '    """Near."""\n\n    properties = frozenset()\n',
        '    """Near."""\n\n    def build(self):\n        return\n',
    ],
)
@pytest.mark.parametrize("value", ['"near"', '(\n        "near"\n        "[ of {width}]"\n    )'])
def test_a_phrase_is_no_change_of_a_plugin(tmp_path: Path, body: str, value: str) -> None:
    file = tmp_path / "near.py"
    text = (
        f"class Near(Positional):\n{body}\n\n@hookimpl\ndef register_positionals():\n    return 1\n"
    )
    file.write_text(text)
    without = source_sha256(file)
    docstring = '    """Near."""\n'
    separated = "\n" if "build" in body else ""
    phrase = f"{docstring}\n    phrase = {value}\n{separated}"
    file.write_text(text.replace(f"{docstring}\n" if "\n\n    " in body else docstring, phrase))
    assert source_sha256(file) == without
    file.write_text(text.replace("return 1", "return 2"))
    assert source_sha256(file) != without


@pytest.mark.parametrize(
    "text",
    [
        "def scale():\n    phrase = 1\n    return phrase\n",
        'class Near(Positional):\n    phrase = "near"; slope = 1\n',
        'class Near(Base1): phrase = "near"\n',
    ],
)
def test_code_beside_a_phrase_counts(tmp_path: Path, text: str) -> None:
    file = tmp_path / "near.py"
    file.write_text(text)
    before = source_sha256(file)
    file.write_text(text.replace("1", "2"))
    assert source_sha256(file) != before


def test_a_folder_that_is_added_to_the_path_changes_no_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("torch", "numpy.linalg", "headtohead_plugins.positional.none")
    before = [module_file(name) for name in names]
    assert None not in before
    monkeypatch.setattr("sys.path", [*sys.path, "/"])
    assert [module_file(name) for name in names] == before


def test_the_packages_of_an_imported_module_count(tmp_path: Path) -> None:
    file = tmp_path / "near.py"
    file.write_text("from near_parts.near_layers import scale\n")
    (tmp_path / "near_parts").mkdir()
    package = tmp_path / "near_parts" / "__init__.py"
    package.write_text("")
    (tmp_path / "near_parts" / "near_layers.py").write_text("scale = 1\n")
    before = source_sha256(file)
    package.write_text("import torch\n")
    assert source_sha256(file) != before
