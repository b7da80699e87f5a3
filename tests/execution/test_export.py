"""``h2h export`` writes a folder that loads as the same model on another machine."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from click.testing import CliRunner
from safetensors.torch import load_file
from torch import Tensor

import headtohead
from headtohead import HeadToHeadError
from headtohead.cli import main
from headtohead.execution.loaded import LoadedRun
from made.study import Study

SENTENCES = ["the cat sees a dog", "she eats", "a zebra"]


@pytest.fixture
def run(undisturbed: Study) -> Path:
    """A finished run; its data are in the cache of the environment."""
    return undisturbed.directories()[0]


@pytest.fixture(scope="module")
def exported(undisturbed: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "model"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("H2H_CACHE", str(undisturbed.cache))
        written = headtohead.export(undisturbed.directories()[0], folder)
    names = ["README.md", "config.json", "manifest.json", "model.safetensors", "vocabulary.json"]
    assert sorted(path.name for path in written) == names
    return folder


@pytest.fixture
def model(exported: Path, tmp_path: Path) -> Path:
    """The exported run."""
    return Path(shutil.copytree(exported, tmp_path / "model"))


def logits(model: LoadedRun) -> list[Tensor]:
    target = torch.tensor([model.data.tokenise("le chat mange", "target")])
    return [model.logits(torch.tensor([model.data.tokenise(text, "source")]), target) for text in SENTENCES]


def test_the_exported_model_computes_equal_logits_without_the_study(
    run: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = headtohead.load(run)
    expected, translations = logits(original), original.translate(SENTENCES)
    (model / "README.md").write_text("mine")  # the card may be edited
    moved = shutil.move(model, model.with_name("elsewhere"))
    monkeypatch.setenv("H2H_CACHE", str(tmp_path / "no-cache"))
    monkeypatch.chdir(tmp_path)
    exported = headtohead.load(moved)
    assert all(torch.equal(*pair) for pair in zip(expected, logits(exported), strict=True))
    assert exported.translate(SENTENCES) == translations
    assert (exported.config, exported.pitfalls) == (original.config, original.pitfalls)
    assert not model.with_name("no-cache").exists()


def test_the_weights_are_a_plain_safetensors_file(run: Path, model: Path) -> None:
    weights = load_file(model / "model.safetensors")
    original = headtohead.load(run).model.state_dict()
    assert {name: list(values.shape) for name, values in weights.items()} == {
        name: list(values.shape[1:]) for name, values in original.items()
    }
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    assert (config["format"], config["model_type"]) == ("headtohead-model/1", "headtohead")
    assert config["run"]["config"]["model"]["d_model"] == 8


def test_the_model_card_has_data_scores_limits_and_use(run: Path, model: Path) -> None:
    card = (model / "README.md").read_text(encoding="utf-8")
    shown = CliRunner().invoke(main, ["show", str(run), "--format", "markdown"])
    assert (shown.exit_code, shown.output) == (0, card)
    _, front, body = card.split("---\n", 2)
    metadata = yaml.safe_load(front)
    results = [json.loads(path.read_text())["metrics"] for path in sorted(run.parent.glob("*/results.json"))]
    assert metadata["license_name"] == "that of the data: MIT"
    assert metadata["datasets"] == ["toy-grammar"]
    (result,) = metadata["model-index"][0]["results"]
    scores = {metric["type"]: metric["value"] for metric in result["metrics"]}
    assert (scores["exact_match"], scores["loss"]) == (results[0]["test/exact_match"], results[0]["test/loss"])
    mean = sum(metrics["test/loss"] for metrics in results) / 2
    row = next(line for line in body.splitlines() if line.startswith("| loss |"))
    assert row.split("|")[2:4] == [f" {results[0]['test/loss']:.3f} ", f" {mean:.3f} "]
    assert json.loads((run / "run.json").read_text(encoding="utf-8"))["run_hash"] in body


def test_an_export_has_no_absolute_paths(run: Path, tmp_path: Path) -> None:
    study = shutil.copytree(run.parent, tmp_path / "runs" / "tiny")
    record = json.loads((study / run.name / "run.json").read_text(encoding="utf-8"))
    record["data"]["notes"] = [str(tmp_path / "secret" / "file.tsv")]
    (study / run.name / "run.json").write_text(json.dumps(record), encoding="utf-8")
    headtohead.export(study / run.name, tmp_path / "model")
    assert str(tmp_path) not in (tmp_path / "model" / "config.json").read_text(encoding="utf-8")


def test_wrong_arguments_are_one_line(finished: Study) -> None:
    (finished.folder / "file").touch()
    run = finished.directories()[0]
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps(status | {"state": "KILLED", "files": {}}))
    for arguments in (("nothing", "model"), ("tiny", "file"), (run.name, "model"), (run.name, "/proc/x")):
        assert finished.h2h("export", *arguments, code=2).stderr.count("\n") == 1
    assert not (finished.folder / "model").exists()


def test_a_damaged_or_missing_file_of_an_export_is_named(model: Path) -> None:
    for name in ("model.safetensors", "config.json", "vocabulary.json", "manifest.json"):
        path = model / name
        content = path.read_bytes()
        path.write_bytes(content[:-3] + b"0" + content[-2:])
        damage = "not valid JSON" if name == "manifest.json" else f"{name}' is damaged"
        with pytest.raises(HeadToHeadError, match=damage):
            headtohead.load(model)
        path.unlink()
        if name in ("vocabulary.json", "manifest.json"):  # without one of the others, the folder is no exported model
            with pytest.raises(HeadToHeadError, match=name):
                headtohead.load(model)
        path.write_bytes(content)
    longer = json.loads((model / "vocabulary.json").read_text(encoding="utf-8"))
    longer["source"]["vocabulary"]["words"].append("new")
    for name, text, message in (
        ("vocabulary.json", json.dumps(longer), "wrong shape"),
        ("vocabulary.json", '{"source": {}}', "vocabulary.json': source.vocabulary: Field required"),
        ("config.json", "{}", "config.json': run: Field required"),
    ):
        (model / name).write_text(text, encoding="utf-8")
        manifest = json.loads((model / "manifest.json").read_text(encoding="utf-8"))
        manifest["files"][name] = hashlib.sha256((model / name).read_bytes()).hexdigest()
        (model / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        with pytest.raises(HeadToHeadError, match=message):
            headtohead.load(model)
