"""What Python users read from finished runs, and folders of ``h2h export``, which load as the same model elsewhere."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from click.testing import CliRunner
from safetensors.torch import load_file
from torch import Tensor

import headtohead
import headtohead as h2h
from headtohead import HeadToHeadError, ownership
from headtohead.cli import main
from headtohead.execution.head_ablation import ablate_heads
from headtohead.execution.loaded import LoadedRun
from made.study import TINY, Study

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
    return [
        model.logits(torch.tensor([model.data.tokenise(text, "source")]), target)
        for text in SENTENCES
    ]


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
    results = [
        json.loads(path.read_text())["metrics"]
        for path in sorted(run.parent.glob("*/results.json"))
    ]
    assert metadata["license_name"] == "that of the data: MIT"
    assert metadata["datasets"] == ["toy-grammar"]
    (result,) = metadata["model-index"][0]["results"]
    scores = {metric["type"]: metric["value"] for metric in result["metrics"]}
    assert (scores["exact_match"], scores["loss"]) == (
        results[0]["test/exact_match"],
        results[0]["test/loss"],
    )
    mean = sum(metrics["test/loss"] for metrics in results) / 2
    row = next(line for line in body.splitlines() if line.startswith("| test loss |"))
    assert row.split("|")[2:4] == [f" {results[0]['test/loss']:.3f} ", f" {mean:.3f} "]
    assert json.loads((run / "run.json").read_text(encoding="utf-8"))["run_hash"] in body


def test_an_export_has_no_absolute_paths(run: Path, tmp_path: Path) -> None:
    study = shutil.copytree(run.parent, tmp_path / "runs" / "tiny")
    record = json.loads((study / run.name / "run.json").read_text(encoding="utf-8"))
    record["data"]["notes"] = [str(tmp_path / "secret" / "file.tsv")]
    (study / run.name / "run.json").write_text(json.dumps(record), encoding="utf-8")
    headtohead.export(study / run.name, tmp_path / "model")
    assert str(tmp_path) not in (tmp_path / "model" / "config.json").read_text(encoding="utf-8")


def test_an_export_that_cannot_be_written_keeps_the_earlier_model(
    run: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    headtohead.export(run, tmp_path / "model")
    request.getfixturevalue("small_files")
    with pytest.raises(HeadToHeadError, match="cannot write"):
        headtohead.export(run, tmp_path / "model", force=True)
    assert headtohead.load(tmp_path / "model").translate(SENTENCES)


def test_an_export_keeps_a_report_in_its_folder_and_removes_a_tokenizer_of_an_earlier_model(
    run: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    earlier = {"report.html": b"report", "tokenizer.source.json": b"{}"}
    ownership.write(folder, earlier, "move it away")
    headtohead.export(run, folder, force=True)
    assert (folder / "report.html").read_bytes() == b"report"
    assert not (folder / "tokenizer.source.json").exists()


def test_wrong_arguments_are_one_line(finished: Study) -> None:
    (finished.folder / "file").touch()
    run = finished.directories()[0]
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps(status | {"state": "KILLED", "files": {}}))
    for arguments in (
        ("nothing", "model"),
        ("tiny", "file"),
        (run.name, "model"),
        (run.name, "/proc/x"),
    ):
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
        if name in (
            "vocabulary.json",
            "manifest.json",
        ):  # without one of the others, the folder is no exported model
            with pytest.raises(HeadToHeadError, match=name):
                headtohead.load(model)
        path.write_bytes(content)
    longer = json.loads((model / "vocabulary.json").read_text(encoding="utf-8"))
    longer["source"]["vocabulary"]["words"].append("new")
    for name, text, message in (
        ("vocabulary.json", json.dumps(longer), "wrong shape"),
        ("vocabulary.json", '{"source": {}}', "vocabulary.json': source.unit: Field required"),
        ("config.json", "{}", "config.json': run: Field required"),
    ):
        (model / name).write_text(text, encoding="utf-8")
        manifest = json.loads((model / "manifest.json").read_text(encoding="utf-8"))
        manifest["files"][name] = hashlib.sha256((model / name).read_bytes()).hexdigest()
        (model / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        with pytest.raises(HeadToHeadError, match=message):
            headtohead.load(model)


def test_an_exported_model_that_does_not_fit_into_memory_is_named_by_its_config(
    model: Path,
) -> None:
    exported = json.loads((model / "config.json").read_text(encoding="utf-8"))
    exported["run"]["imported"] = {
        "file": "a.pt",
        "sha256": "ab" * 32,
        "form": "x",
        "words": {"source": 2**31 - 1, "target": 2**31 - 1},
        "positions": None,
    }
    (model / "config.json").write_text(json.dumps(exported), encoding="utf-8")
    (model / "vocabulary.json").unlink()
    manifest = json.loads((model / "manifest.json").read_text(encoding="utf-8"))
    del manifest["files"]["vocabulary.json"]
    sha256 = hashlib.sha256((model / "config.json").read_bytes()).hexdigest()
    manifest["files"]["config.json"] = sha256
    (model / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(HeadToHeadError, match=r"config\.json' does not fit into the memory"):
        headtohead.load(model)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "vocabulary.json"])
def test_a_file_without_a_sha256_in_the_manifest_is_not_loaded(model: Path, name: str) -> None:
    manifest = json.loads((model / "manifest.json").read_text(encoding="utf-8"))
    del manifest["files"][name]
    (model / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(HeadToHeadError) as caught:
        headtohead.load(model)
    expected = (
        f"manifest.json has no sha256 of '{model / name}'; export the run again to another folder"
    )
    assert str(caught.value) == expected


@pytest.fixture
def loaded(undisturbed: Study) -> LoadedRun:
    """A loaded run; its data are in the cache of the environment."""
    return h2h.load(undisturbed.directories()[0])


def test_curves_have_every_value_of_every_history_with_variant_axes_and_seed(
    undisturbed: Study,
) -> None:
    curves = h2h.curves(undisturbed.file, runs=undisturbed.runs)
    assert list(curves) == ["run", "variant", "seed", "step", "epoch", "metric", "value"]
    written = {}
    for run in undisturbed.directories():
        seed = json.loads((run / "run.json").read_text(encoding="utf-8"))["seed"]
        for text in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            values = {
                metric: value
                for metric, value in line.items()
                if metric not in ("step", "epoch", "time")
            }
            for metric, value in values.get("values", values).items():
                written[run.name, seed, line["step"], metric] = value
    read = curves.set_index(["run", "seed", "step", "metric"])["value"]
    assert read.to_dict() == written
    assert set(curves["variant"]) == {"baseline"}
    losses = curves[curves["metric"] == "valid/loss"]
    assert losses.groupby("seed")["step"].apply(list).to_dict() == {
        1: [20, 40, 60],
        2: [20, 40, 60],
    }


def test_the_tokenizer_has_the_ids_of_training_and_returns_normalised_text(
    loaded: LoadedRun,
) -> None:
    tokenizer, split = loaded.tokenizer, loaded.data.splits["train"]
    for side in ("source", "target"):
        text, ids = (getattr(split, f"{side}_text")[0], getattr(split, side)[0])
        assert tokenizer.encode(text, side) == ids.tolist()
        assert tokenizer.decode(torch.tensor(ids), side) == text
        special = tokenizer.special_ids(side)
        tokens = tokenizer.tokens(ids, side)
        assert tokens == (["<sos>"] if side == "target" else []) + [*text.split(), "<eos>"]
        assert (special["eos"], special["pad"]) == (ids[-1], 0)
        assert (
            tokenizer.tokens(range(tokenizer.vocab_size(side)), side)
            == loaded.data.vocabulary(side).words
        )
    assert tokenizer.tokens(tokenizer.encode("the gnu sees")) == ["the", "<unk>", "sees", "<eos>"]


def test_forward_with_one_member_returns_the_logits_of_the_run(loaded: LoadedRun) -> None:
    source = torch.tensor([loaded.tokenizer.encode("the cat sees a dog")])
    target = torch.tensor([loaded.tokenizer.encode("le chat mange", "target")])
    lengths = [torch.tensor([[ids.shape[1]]]) for ids in (source, target)]
    logits = loaded.model(source.unsqueeze(0), lengths[0], target.unsqueeze(0), lengths[1])
    assert logits.shape == (1, 1, target.shape[1], loaded.tokenizer.vocab_size("target"))
    assert torch.equal(logits[0], loaded.logits(source, target))
    logits.sum().backward()
    assert all(
        weights.shape[0] == 1 and weights.grad is not None for weights in loaded.model.parameters()
    )


def test_the_hook_of_the_page_appends_each_evaluation(study: Study) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "loggers.md"
    (hook,) = re.findall(
        r"^```python\n([^`]*def on_evaluation.*?)^```$",
        page.read_text("utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    (study.folder / "evaluations.py").write_text(hook, encoding="utf-8")
    study.write(base={"train": {"steps": 4, "evaluate_every": 2}})
    study.run("--plugin", "evaluations.py")
    lines = [
        json.loads(line)
        for line in (study.experiment / "evaluations.jsonl").read_text("utf-8").splitlines()
    ]
    assert sorted((line.pop("run"), line.pop("step")) for line in lines) == [
        (run.name, step) for run in study.directories() for step in (2, 4)
    ]
    assert all(line["train/loss"] > 0 and line["valid/loss"] > 0 for line in lines)


def test_an_experiment_is_a_dict_with_a_name_and_a_run_in_a_script_prints_progress(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = TINY | {
        "seeds": 1,
        "base": TINY["base"] | {"train": {"steps": 4, "batch_tokens": 128}},
    }
    with pytest.raises(h2h.HeadToHeadError, match="needs a name"):
        h2h.plan(content)
    assert h2h.plan(content, name="mine", runs=tmp_path / "runs").name == "mine"
    done = h2h.run(content, name="mine", runs=tmp_path / "runs", tracking=False, workers=1)
    assert done.complete
    output = capsys.readouterr()
    assert "[1/1] " in output.err
    assert "report: " in output.out


def test_a_loaded_run_decodes_like_its_evaluation(study: Study) -> None:
    task = {"dataset": "reverse", "split": "length", "longest": 4, "test_each": 3, "alphabet": 4}
    train = {"steps": 10, "lr": 0.05, "evaluate_every": 10}
    study.write(
        base={"data": task, "model": {"dropout": 0.0}, "train": train}, seeds=1, probes=["3 2 1"]
    )
    study.run()
    (run,) = study.directories()
    loaded, results = h2h.load(run), json.loads((run / "results.json").read_text())
    longest = [
        max(len(text.split()) for text in loaded.data.splits[name].target_text)
        for name in ("train", "test")
    ]
    assert longest == [4, 8]
    limit = (longest[0] + 1) * 3 // 2
    recorded = json.loads((run / "run.json").read_text())["decoding_limit"]
    assert loaded.decoding_limit == recorded == results["decoding"]["max_length"] == limit == 7
    rows = [row.split("\t") for row in (run / "translations.tsv").read_text().splitlines()[1:]]
    assert (
        max(len(hypothesis.split()) for _, _, hypothesis, _ in rows) == limit
    )  # the limit matters
    assert loaded.translate([source for source, *_ in rows]) == [
        hypothesis for _, _, hypothesis, _ in rows
    ]
    whole = ablate_heads(run)["whole"]
    assert {f"test/{name}": whole[name] for name in ("bleu", "exact_match")}.items() <= results[
        "metrics"
    ].items()
