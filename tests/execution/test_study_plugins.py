"""Plugins that an experiment file names: files, folders and modules, also in workers."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from headtohead.plugins import registry
from made import case_table

Command = Callable[..., Any]

ENCODING = '''"""{name}: minus the distance times {slope}."""
from headtohead.plugin import Positional, hookimpl


class Near(Positional):
    def bias(self, query_positions, key_positions, role, layer):
        return -{slope} * (query_positions[:, :, None] - key_positions[:, None, :]).abs()[:, None, None].float()


@hookimpl
def register_positionals():
    return {{"{name}": Near}}
'''

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
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a study that names its plugins by file, folder and module."""
    for place in ("study/more", "site"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "study" / "near.py").write_text(ENCODING.format(name="near", slope=1))
    (tmp_path / "study" / "more" / "letters.py").write_text(DATASET)
    (tmp_path / "study" / "more" / "_notes.py").write_text("raise RuntimeError('not a plugin')\n")
    (tmp_path / "site" / "h2h_far.py").write_text(ENCODING.format(name="far", slope=0.1))
    monkeypatch.syspath_prepend(tmp_path / "site")
    write(tmp_path, STUDY)
    return tmp_path


def write(folder: Path, content: dict[str, Any]) -> None:
    (folder / "study" / "near.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


@pytest.mark.slow
def test_a_study_trains_with_the_plugins_that_its_file_names(
    folder: Path, h2h_here: Command, without_figures: None
) -> None:
    cache = {"H2H_CACHE": str(folder / "cache")}
    done = h2h_here(folder, "run", "study/near.yaml", "--no-tracking", "--workers", "1", "--threads", "1", **cache)
    assert done.returncode == 0, done.stderr
    origins = {}
    for path in folder.glob("study/runs/near/*/run.json"):
        for plugin in json.loads(path.read_text("utf-8"))["plugins"]:
            origins[plugin["name"]] = plugin["module"], plugin["distribution"], plugin["source_sha256"]
    sources = {"near": "study/near.py", "letters": "study/more/letters.py", "far": "site/h2h_far.py"}
    sha256 = {name: hashlib.sha256((folder / file).read_bytes()).hexdigest() for name, file in sources.items()}
    assert {name: origins[name] for name in sources} == {
        "near": ("study/near.py", "file", sha256["near"]),
        "letters": ("study/more/letters.py", "file", sha256["letters"]),
        "far": ("h2h_far", "module", sha256["far"]),
    }

    def is_stale(*command: str) -> bool:
        return "positional 'near' has changed" in h2h_here(folder, *command, "study/near.yaml", **cache).stdout

    (folder / "study" / "near.py").write_text(ENCODING.format(name="near", slope=2))
    assert all(map(is_stale, ("plan", "status", "report")))
    done = h2h_here(folder, "run", "study/near.yaml", "--no-tracking", **cache)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "add --stale" in done.stderr
    answer = json.loads((folder / "study/reports/near/answer.json").read_text("utf-8"))
    assert answer["stale"] == ["positional 'near' has changed"]
    results = {path.parent.name: path.stat().st_ino for path in folder.glob("study/runs/near/*/results.json")}
    (near,) = (name for name in results if name.startswith("near-"))
    again = h2h_here(folder, "run", "study/near.yaml", "--stale", "--no-tracking", "--workers", "1", **cache)
    assert again.returncode == 0, again.stderr
    kept = {path.parent.name: path.stat().st_ino for path in folder.glob("study/runs/near/*/results.json")}
    assert {name for name in results if kept[name] != results[name]} == {near}
    assert [path.parent.name for path in folder.glob("study/runs/near/.archived/*/*/results.json")] == [near]
    assert not is_stale("plan")


@pytest.mark.slow
def test_workers_of_a_cluster_load_the_plugins_of_the_file(
    folder: Path, h2h_here: Command, without_figures: None
) -> None:
    pytest.importorskip("submitit", reason="submitit is missing: pip install 'headtohead[slurm]'")
    write(folder, STUDY | {"plugins": ["near.py", "more"], "design": []})
    words = ["--launcher", "slurm", "--launcher-option", "executor=local"]
    cache = {"H2H_CACHE": str(folder / "cache")}
    done = h2h_here(folder, "run", "study/near.yaml", "--no-tracking", *words, **cache)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("study/runs/near/*/status.json")
    assert json.loads(path.read_text("utf-8"))["state"] == "DONE"


@case_table("name", ["absent.py", "empty", "near.yaml", "no_such_package.encodings", "json"], default=1)
def test_a_name_without_a_plugin_is_one_line(folder: Path, h2h_here: Command, name: str) -> None:
    (folder / "study" / "empty").mkdir()
    write(folder, STUDY | {"plugins": [name]})
    done = h2h_here(folder, "plan", "study/near.yaml")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("h2h: study/near.yaml:3: plugins[0]: ")


@pytest.mark.slow
def test_a_changed_plugin_file_is_loaded_again_in_the_same_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_current", None)
    file = folder / "study" / "near.py"
    first = registry.use_files([file]).find("positional", "near")
    assert registry.use_files([file]).find("positional", "near") is first
    file.write_text(ENCODING.format(name="near", slope=3))
    second = registry.use_files([file]).find("positional", "near")
    assert second.source_sha256 == hashlib.sha256(file.read_bytes()).hexdigest() != first.source_sha256
