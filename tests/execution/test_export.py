"""``h2h export`` writes a folder that loads as the same model on another machine."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor

import headtohead
from headtohead import HeadToHeadError
from headtohead.execution.loaded import LoadedRun
from headtohead.report.model_card import model_card
from headtohead.storage.results import BucketRecord
from headtohead.storage.run_directory import RunDirectory

SENTENCES = ["the cat sees a dog", "she eats", "a zebra"]
FILES = {"README.md", "config.json", "manifest.json", "model.safetensors", "vocabulary.json"}


@pytest.fixture
def run(undisturbed: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run; its data are in the cache of the environment."""
    monkeypatch.setenv("H2H_CACHE", str(undisturbed.cache))
    return undisturbed.directories()[0]  # type: ignore[no-any-return]


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], None]:
    """Leave the study's folder and its data."""

    def go() -> None:
        monkeypatch.setenv("H2H_CACHE", str(tmp_path / "no-cache"))
        monkeypatch.chdir(tmp_path)

    return go


def logits(model: LoadedRun) -> list[Tensor]:
    found = []
    for sentence in SENTENCES:
        source = torch.tensor([model.data.tokenise(sentence, "source")])
        target = torch.tensor([model.data.tokenise("le chat mange", "target")])
        found.append(model.logits(source, target))
    return found


def assert_equal_models(original: LoadedRun, exported: LoadedRun) -> None:
    for name, values in original.model.state_dict().items():
        assert torch.equal(exported.model.state_dict()[name], values), name
    assert exported.config == original.config
    assert exported.pitfalls == original.pitfalls


def test_the_exported_model_computes_equal_logits_without_the_study(
    run: Path, tmp_path: Path, away: Callable[[], None]
) -> None:
    original = headtohead.load(run)
    expected, translations = logits(original), original.translate(SENTENCES)
    written = headtohead.export(run, tmp_path / "model")
    assert {path.name for path in written} == FILES
    assert {path.name for path in (tmp_path / "model").iterdir()} == FILES | {".headtohead.jsonl"}
    moved = shutil.move(tmp_path / "model", tmp_path / "elsewhere")
    away()
    exported = headtohead.load(moved)
    assert all(torch.equal(*pair) for pair in zip(expected, logits(exported), strict=True))
    assert exported.translate(SENTENCES) == translations
    assert_equal_models(original, exported)
    assert not (tmp_path / "no-cache").exists()


@pytest.mark.slow
def test_subwords_are_exported(study: Any, away: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("H2H_CACHE", str(study.cache))
    study.write(base={"data": {"tokens": "subword", "vocabulary": {"max_size": 120}}, "train": {"steps": 4}}, seeds=1)
    study.run()
    (run,) = study.directories()
    expected = logits(headtohead.load(run))
    headtohead.export(run, study.folder / "model")
    away()
    assert all(
        torch.equal(*pair) for pair in zip(expected, logits(headtohead.load(study.folder / "model")), strict=True)
    )
    (study.folder / "model" / "tokenizer.source.json").unlink()
    with pytest.raises(HeadToHeadError, match=r"tokenizer\.source\.json' is missing; export the run again"):
        headtohead.load(study.folder / "model")


def test_the_weights_are_a_plain_safetensors_file(run: Path, tmp_path: Path) -> None:
    headtohead.export(run, tmp_path / "model")
    weights = load_file(tmp_path / "model" / "model.safetensors")
    original = headtohead.load(run).model.state_dict()
    assert {name: list(values.shape) for name, values in weights.items()} == {
        name: list(values.shape[1:]) for name, values in original.items()
    }
    config = json.loads((tmp_path / "model" / "config.json").read_text(encoding="utf-8"))
    assert (config["format"], config["model_type"]) == ("headtohead-model/1", "headtohead")
    assert config["run"]["config"]["model"]["d_model"] == 8


def test_the_model_card_has_data_scores_limits_and_use(run: Path, tmp_path: Path) -> None:
    headtohead.export(run, tmp_path / "model")
    text = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    _, front, body = text.split("---\n", 2)
    metadata = yaml.safe_load(front)
    results = json.loads((run / "results.json").read_text(encoding="utf-8"))["metrics"]
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert metadata["license"] == "other"
    assert metadata["license_name"] == "that of the data: MIT"
    assert metadata["datasets"] == ["toy-grammar"]
    (result,) = metadata["model-index"][0]["results"]
    scores = {metric["type"]: metric["value"] for metric in result["metrics"]}
    assert scores["exact_match"] == results["test/exact_match"]
    assert scores["loss"] == results["test/loss"]
    for heading in ("Scores", "Data", "Limits", "Use", "Origin"):
        assert f"\n## {heading}\n" in body
    other = next(path for path in run.parent.glob("*/results.json") if path.parent != run)
    mean = (results["test/loss"] + json.loads(other.read_text())["metrics"]["test/loss"]) / 2
    row = next(line for line in body.splitlines() if line.startswith("| loss |"))
    assert row.split("|")[2:4] == [f" {results['test/loss']:.3f} ", f" {mean:.3f} "]
    assert row.rstrip("|").split("|")[-1].strip() == "2"
    assert "- licence: MIT" in body
    assert "- citation: " in body
    assert f"`{record['run_hash']}`" in body
    assert 'model = h2h.load("path/of/this/folder")' in body
    assert "A research model" in body


def test_the_model_card_states_how_many_sentences_were_translated(run: Path) -> None:
    directory = RunDirectory(run)
    results = directory.results
    assert results is not None
    bucket = BucketRecord(bucket="1-5", low=1, high=5, n=3)
    card = model_card(directory.record, results.model_copy(update={"buckets": (bucket,)}), None, translates=True)
    pairs = directory.record.data["counts"]["test"]
    assert f"On {pairs} test pairs of the dataset. Translations are scored on 3 source sentences. The score of" in card


def test_absolute_paths_stay_out_of_the_export(
    run: Path, tmp_path: Path, record_checksums: Callable[[Path], None]
) -> None:
    study = shutil.copytree(run.parent, tmp_path / "runs" / "tiny")
    record = json.loads((study / run.name / "run.json").read_text(encoding="utf-8"))
    record["data"]["notes"] = [str(tmp_path / "secret" / "file.tsv")]
    (study / run.name / "run.json").write_text(json.dumps(record), encoding="utf-8")
    headtohead.export(study / run.name, tmp_path / "model")
    assert str(tmp_path) not in (tmp_path / "model" / "config.json").read_text(encoding="utf-8")


def test_a_folder_with_files_needs_force(run: Path, tmp_path: Path, undisturbed: Any) -> None:
    folder = tmp_path / "model"
    folder.mkdir()

    def export(*options: str) -> Any:
        words = ("export", run.name[:-4], str(folder), *options)
        return undisturbed.here(undisturbed.folder, *words, H2H_CACHE=str(undisturbed.cache))

    done = export()
    assert done.returncode == 0, done.stderr
    assert f'load: headtohead.load("{folder}") in Python' in done.stdout
    (folder / "notes.txt").write_text("mine")
    (folder / "model.safetensors").write_bytes(b"old")
    refused = export()
    assert refused.returncode == 2
    assert refused.stderr == (
        f"h2h: folder '{folder}' is not empty; choose another, or --force to replace the model in it\n"
    )
    assert (folder / "model.safetensors").read_bytes() == b"old"
    assert export("--force").returncode == 0
    assert (folder / "notes.txt").read_text() == "mine"
    assert load_file(folder / "model.safetensors")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing", "model"), "h2h: no run 'nothing' in '"),
        (("tiny", "file"), "h2h: 'file' is a file; choose a folder"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple[str, ...], message: str, finished: Any) -> None:
    (finished.folder / "file").touch()
    done = finished.here(finished.folder, "export", *arguments, H2H_CACHE=str(finished.cache))
    assert done.returncode == 2
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


def test_an_unfinished_run_is_not_exported(finished: Any) -> None:
    run = finished.directories()[0]
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps(status | {"state": "KILLED", "files": {}}))
    done = finished.here(finished.folder, "export", run.name, "model", H2H_CACHE=str(finished.cache))
    assert done.returncode == 2
    assert "KILLED" in done.stderr
    assert not (finished.folder / "model").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", "{}", "config.json': vocabulary_sizes: Field required"),
        ("config.json", "{", "not valid JSON"),
        ("vocabulary.json", '{"source": {}}', "vocabulary.json': source.words: Field required"),
        ("model.safetensors", "old", "model.safetensors' is damaged"),
    ],
)
def test_an_invalid_export_is_named(run: Path, tmp_path: Path, name: str, content: str, message: str) -> None:
    headtohead.export(run, tmp_path / "model")
    (tmp_path / "model" / name).write_text(content)
    record_sha256(tmp_path / "model", name)
    with pytest.raises(HeadToHeadError) as error:
        headtohead.load(tmp_path / "model")
    assert message in str(error.value)


def record_sha256(model: Path, name: str) -> None:
    """Record the sha256 of a file of a model as it is."""
    manifest = json.loads((model / "manifest.json").read_text(encoding="utf-8"))
    manifest["files"][name] = hashlib.sha256((model / name).read_bytes()).hexdigest()
    (model / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


@pytest.mark.parametrize("name", ["config.json", "vocabulary.json", "model.safetensors", "manifest.json"])
def test_a_damaged_or_missing_file_of_an_export_is_named(run: Path, tmp_path: Path, name: str) -> None:
    headtohead.export(run, tmp_path / "model")
    path = tmp_path / "model" / name
    content = path.read_bytes()
    path.write_bytes(content[:-3] + b"0" + content[-2:])
    damaged = f"'{path}' is damaged: its sha256 is not that in manifest.json; export the run again"
    missing = f"'{path}' is missing; export the run again"
    if name == "manifest.json":
        damaged, missing = "not valid JSON", f"'{path.parent}' has no manifest.json; export the run again"
    with pytest.raises(HeadToHeadError) as error:
        headtohead.load(path.parent)
    assert damaged in str(error.value)
    path.unlink()
    if name in ("config.json", "model.safetensors"):
        return  # the folder is no exported model
    with pytest.raises(HeadToHeadError) as error:
        headtohead.load(path.parent)
    assert str(error.value) == missing


def test_the_model_card_of_an_export_may_be_edited(run: Path, tmp_path: Path) -> None:
    headtohead.export(run, tmp_path / "model")
    (tmp_path / "model" / "README.md").write_text("mine")
    assert headtohead.load(tmp_path / "model").can_translate


def test_other_words_than_the_weights_are_refused(run: Path, tmp_path: Path) -> None:
    headtohead.export(run, tmp_path / "model")
    file = tmp_path / "model" / "vocabulary.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    content["source"]["words"].append("new")
    file.write_text(json.dumps(content), encoding="utf-8")
    record_sha256(file.parent, file.name)
    with pytest.raises(HeadToHeadError, match=r"vocabulary\.json and config\.json in .* differ in size"):
        headtohead.load(tmp_path / "model")


def test_a_folder_that_cannot_be_created_is_one_line(run: Path) -> None:
    with pytest.raises(HeadToHeadError, match="cannot write to '/proc/x'"):
        headtohead.export(run, Path("/proc/x"))
