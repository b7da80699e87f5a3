"""Plugins that an experiment file names: files, folders and modules, also in workers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headtohead import files
from headtohead.plugins import registry
from made import case_table, error_line, plugin_file
from made.study import Study

Command = Callable[..., Any]


def encoding(name: str, slope: float) -> str:
    """Return a plugin with a bias of minus the distance times the slope."""
    return plugin_file(
        f"""
        def bias(self, query_positions, key_positions, role, layer):
            return -{slope} * (query_positions[:, :, None] - key_positions[:, None, :]).abs()[:, None, None].float()
        """,
        name=name,
    )


DATASET = '''"""letters: a sequence of letters in capitals."""
import itertools

from headtohead.plugin import Corpus, Dataset, Pair, hookimpl


class Letters(Dataset):
    @classmethod
    def load(cls, options, split, cache):
        sources = [" ".join(letters) for letters in itertools.permutations("abcde", 4)]
        pairs = [Pair(source, source.upper(), source) for source in sources]
        return Corpus(pairs, "CC0", "nobody", ("letters", "capitals"))


@hookimpl
def register_datasets():
    return {"letters": Letters}
'''

STUDY: dict[str, Any] = {
    "question": "Is the nearer key enough?",
    "plugins": ["near.py", "more", "h2h_far"],
    "base": {
        "data": {"dataset": "letters"},
        "model": {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 8, "dropout": 0.0},
        "train": {"steps": 4, "batch_tokens": 128},
        "evaluate": {"test_limit": 4, "max_length": 6, "unpadded": False},
    },
    "baseline": {"positional": "near"},
    "design": [{"one_at_a_time": {"positional": ["far"]}}],
    "seeds": 1,
}


@pytest.fixture
def study(tmp_path: Path, h2h_here: Command, monkeypatch: pytest.MonkeyPatch) -> Study:
    """A study that names its plugins by file, folder and module."""
    made = Study(tmp_path / "study", tmp_path / "cache", h2h_here, STUDY, "near")
    for folder in ("study/more", "site"):
        (tmp_path / folder).mkdir(parents=True)
    (made.folder / "near.py").write_text(encoding("near", 1))
    (made.folder / "more" / "letters.py").write_text(DATASET)
    (made.folder / "more" / "_notes.py").write_text("raise RuntimeError('not a plugin')\n")
    (tmp_path / "site" / "h2h_far.py").write_text(encoding("far", 0.1))
    monkeypatch.syspath_prepend(tmp_path / "site")
    made.write()
    return made


def test_a_worker_refuses_data_that_are_not_those_of_the_plan(study: Study) -> None:
    other = DATASET.replace("itertools\n", "itertools\nimport os\n", 1).replace(
        "upper(), ", "upper() + f' {os.getpid()}', "
    )
    (study.folder / "more" / "letters.py").write_text(other)
    done = study.run(file=Path("near.yaml"), code=2)
    assert "the data of dataset 'letters' has changed since the run was planned" in done.stderr
    assert not list(study.experiment.glob("*/results.json"))


@case_table(
    ("error", "expected"),
    [
        (
            'RuntimeError("the size of tensor a (3) must match the size of tensor b (4)")',
            "with positional/near fails: RuntimeError: the size of tensor a (3) must match the size of tensor b (4) "
            "(near.py:",
        ),
        (
            "MemoryError",
            "does not fit into the memory of this machine; if the sizes in the file are wrong, restore it",
        ),
    ],
    default=1,
)
def test_errors_while_a_stored_model_is_built_have_their_own_causes(
    study: Study, error: str, expected: str
) -> None:
    study.write(design=[])
    study.run(file=Path("near.yaml"))
    (run,) = study.directories()
    hook = f"def build(self):\n    raise {error}"
    (study.folder / "near.py").write_text(plugin_file(hook, name="near"))
    plugins = ("--plugin", "near.py", "--plugin", "more/letters.py")
    done = study.h2h("generate", str(run), "a b c d", *plugins, code=2)
    assert f"the model of '{run / 'run.json'}' {expected}" in error_line(done)


@pytest.mark.slow
def test_a_study_trains_with_the_plugins_that_its_file_names(study: Study) -> None:
    file = Path("near.yaml")  # relative, as are the recorded names of plugins
    study.run(file=file)
    origins = {}
    for path in study.directories():
        for plugin in files.read_json(path / "run.json")["plugins"]:
            origins[plugin["name"]] = (
                plugin["module"],
                plugin["distribution"],
                plugin["source_sha256"],
            )
    sources = {"near": "near.py", "letters": "more/letters.py", "far": "../site/h2h_far.py"}
    sha256 = {name: files.sha256(study.folder / file) for name, file in sources.items()}
    assert {name: origins[name] for name in sources} == {
        "near": ("near.py", "file", sha256["near"]),
        "letters": ("more/letters.py", "file", sha256["letters"]),
        "far": ("h2h_far", "module", sha256["far"]),
    }

    def is_stale(command: str) -> bool:
        return "positional 'near' has changed" in study.h2h(command, "near.yaml").stdout

    def results() -> dict[str, int]:
        return {path.name: (path / "results.json").stat().st_ino for path in study.directories()}

    (study.folder / "near.py").write_text(encoding("near", 2))
    assert all(map(is_stale, ("plan", "status", "report")))
    assert "add --stale" in error_line(study.run(file=file, code=2))
    assert study.answer()["stale"] == ["positional 'near' has changed"]
    before = results()
    (near,) = (name for name in before if name.startswith("near-"))
    study.run("--stale", file=file)
    after = results()
    assert {name for name in before if after[name] != before[name]} == {near}
    assert [path.parent.name for path in study.experiment.glob(".archived/*/*/results.json")] == [
        near
    ]
    assert not is_stale("plan")


@pytest.mark.slow
def test_workers_of_a_cluster_load_the_plugins_of_the_file(study: Study) -> None:
    pytest.importorskip("submitit", reason="submitit is missing: pip install submitit")
    study.write(plugins=["near.py", "more"], design=[])
    study.run("--launcher", "slurm", "--launcher-option", "executor=local")
    assert [*study.states().values()] == ["DONE"]


@case_table(
    "name", ["absent.py", "empty", "near.yaml", "no_such_package.encodings", "json"], default=1
)
def test_a_name_without_a_plugin_is_one_line(study: Study, name: str) -> None:
    (study.folder / "empty").mkdir()
    study.write(plugins=[name])
    assert error_line(study.h2h("plan", "near.yaml", code=2)).startswith(
        "near.yaml:3: plugins[0]: "
    )


@pytest.mark.slow
@pytest.mark.usefixtures("own_registry")
def test_a_changed_plugin_file_is_loaded_again_in_the_same_process(study: Study) -> None:
    file = study.folder / "near.py"
    first = registry.use_files([file]).find("positional", "near")
    assert registry.use_files([file]).find("positional", "near") is first
    file.write_text(encoding("near", 3))
    second = registry.use_files([file]).find("positional", "near")
    assert second.source_sha256 == files.sha256(file) != first.source_sha256
