"""An imported checkpoint is an ordinary run: its files, its study, and the commands for runs."""

import hashlib
import shutil

import pytest
import torch
from safetensors.torch import load_file

import headtohead
from headtohead import HeadToHeadError
from headtohead.files import read_json
from headtohead_notebooks import import_checkpoint


@pytest.fixture
def scratch(notebooks, saved):
    torch.manual_seed(0)
    return saved(notebooks.Scratch(words=(5000, 5000)), "scratch.pt")


@pytest.fixture
def tatoeba(notebooks, saved):
    torch.manual_seed(0)
    return saved(notebooks.Tatoeba(), "tatoeba.pt")


def test_the_directory_has_the_files_of_a_run(scratch, h2h, tmp_path):
    code, out, err = h2h(
        "import-checkpoint", scratch, "--recipe", "scratch-en-fr", "--name", "first"
    )
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "scratch-en-fr, split heads: d_model 10, 1 heads, 1+1 layers, d_ff 40, vocabularies of 5000 and 5000 words",
        "pitfalls: nothing held out, words dropped",
        "runs/imported/first",
    ]
    run = tmp_path / "runs" / "imported" / "first"
    record = read_json(run / "run.json")
    assert record["recipe"] == "scratch-en-fr"
    assert record["imported"] == {
        "file": str(scratch),
        "sha256": hashlib.sha256(scratch.read_bytes()).hexdigest(),
        "form": "split heads",
        "words": {"source": 5000, "target": 5000},
        "positions": 5,
    }
    assert {pitfall["name"] for pitfall in record["pitfalls"]} >= {
        "nothing held out",
        "words dropped",
    }
    assert record["config"]["model"]["min_vocab_size"] == 5000
    assert record["counts"]["total"] == sum(
        tensor.numel() for name, tensor in torch.load(scratch).items() if not name.endswith("pe")
    )
    assert read_json(run / "status.json")["state"] == "DONE"
    assert (run / "metrics.jsonl").read_text() == ""
    assert read_json(run / "results.json")["metrics"] == {}
    assert read_json(run / "vocabulary.json")["source"][38:] == ["<sos>", "<eos>"]
    assert load_file(run / "checkpoint.safetensors")["lm_head.weight"].shape == (10, 5000)


@pytest.mark.slow
# MLflow's own use of its libraries; remove the line when MLflow is fixed.
@pytest.mark.usefixtures("without_figures")
def test_status_report_translate_and_sync_read_it(scratch, tatoeba, h2h, tmp_path, store_template):
    shutil.copyfile(store_template, tmp_path / "mlflow.db")
    h2h("import-checkpoint", scratch, "--recipe", "scratch-en-fr", "--name", "first")
    h2h("import-checkpoint", tatoeba, "--recipe", "tatoeba-en-es", "--name", "third")
    code, out, _ = h2h("status", "imported")
    assert code == 0
    assert "2 runs: 2 DONE" in out
    code, out, _ = h2h("report", "imported")
    assert code == 0
    page = (tmp_path / "reports" / "imported" / "report.md").read_text(encoding="utf-8")
    assert "positions by batch row" in page
    code, out, err = h2h("generate", "first", "cat is small")
    assert code == 0
    assert out.count("\n") == 1
    assert err.splitlines() == [
        "note: not in the vocabulary: is",
        "note: pitfalls of this run: nothing held out, words dropped",
    ]
    code, out, err = h2h("sync", "imported")
    assert code == 0, err
    assert "2 logged" in out
    assert "it cannot be reproduced" in h2h("reproduce", "first")[2]


def test_an_existing_run_is_kept(scratch, tatoeba, h2h, tmp_path):
    h2h("import-checkpoint", scratch, "--recipe", "scratch-en-fr", "--name", "mine")
    code, out, err = h2h(
        "import-checkpoint", tatoeba, "--recipe", "tatoeba-en-es", "--name", "mine"
    )
    assert (code, out, err) == (
        2,
        "",
        "h2h: run 'runs/imported/mine' exists; delete it, or use another --name\n",
    )
    assert read_json(tmp_path / "runs/imported/mine/run.json")["recipe"] == "scratch-en-fr"


@pytest.mark.slow
def test_the_run_requires_neither_the_checkpoint_nor_the_data_afterwards(
    notebooks, saved, tmp_path
):
    data = tmp_path / "eng-spa.tsv"
    data.write_text("1\tHello\t2\tHola\n", encoding="utf-8")
    file = saved(notebooks.Tatoeba(words=(5, 5)))
    path = import_checkpoint(
        file, recipe="tatoeba-en-es", name="three", data=data, runs=tmp_path / "runs"
    )
    expected = headtohead.load(path).translate(["Hello"])
    file.unlink()
    data.unlink()
    moved = tmp_path / "moved"
    shutil.move(path, moved)
    assert headtohead.load(moved).translate(["Hello"]) == expected


def test_an_imported_checkpoint_without_vocabularies_is_exported(tatoeba, h2h, tmp_path):
    """The exported model computes equal logits from ids, and names no folder of this machine."""
    code, out, _ = h2h("import-checkpoint", tatoeba, "--recipe", "tatoeba-en-es", "--name", "ids")
    assert code == 0
    assert "note: it was imported without --data: it has no vocabularies" in out
    code, _, err = h2h("generate", "ids", "hello")
    assert code == 2
    assert err.startswith(
        "h2h: run 'ids' has no vocabularies; repeat h2h import-checkpoint with --data "
    )
    run = tmp_path / out.splitlines()[-1]
    headtohead.export(run, tmp_path / "model")
    original, exported = headtohead.load(run), headtohead.load(tmp_path / "model")
    ids = torch.tensor([[1, 5, 9, 3]])
    assert torch.equal(original.logits(ids, ids), exported.logits(ids, ids))
    assert not (tmp_path / "model" / "vocabulary.json").exists()
    assert str(tmp_path) not in (tmp_path / "model" / "config.json").read_text(encoding="utf-8")
    with pytest.raises(HeadToHeadError, match="has no vocabularies"):
        exported.translate(["hello"])
