"""h2h ablate-heads on trained runs: it writes a file beside each run, and the report includes it."""

import json
from dataclasses import replace

import pytest
import yaml
from click.testing import CliRunner

from headtohead.cli import main
from headtohead.errors import HeadToHeadError
from headtohead.execution import head_ablation
from headtohead.execution.head_ablation import masked_heads
from headtohead.storage.leases import Lease
from headtohead.storage.metrics import show

STUDY = {
    "question": "Which attention needs its heads?",
    "base": {
        "data": {"dataset": "toy-grammar", "size": 200},
        "model": {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 16, "dropout": 0.0},
        "train": {"steps": 6, "batch_tokens": 128, "lr": 0.01},
        "evaluate": {"unpadded": False, "test_limit": 5, "max_length": 4},
    },
    "baseline": {"positional": "sinusoidal"},
    "seeds": 2,
    "contrasts": [
        {
            "name": "Cross-attention loses most",
            "variant": {},
            "metric": "heads/cross/only-one/loss",
            "against_metric": "heads/encoder/only-one/loss",
            "expect": {"direction": "higher", "source": "Michel et al. 2019, table 2"},
        }
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, no_figures):
    made = tmp_path_factory.mktemp("heads")
    (made / "tiny.yaml").write_text(yaml.safe_dump(STUDY, sort_keys=False))
    with no_figures():
        done = call(made, "run", str(made / "tiny.yaml"), "--no-tracking", "--reports", str(made / "reports"))
    assert done.exit_code == 0, done.output
    return made


def call(folder, command, *arguments):
    environment = {"H2H_CACHE": str(folder / "cache"), "H2H_RUNS": str(folder / "runs")}
    return CliRunner().invoke(main, [command, *arguments], env=environment)


def test_every_run_gets_a_file_and_the_report_summarises_them(folder, no_figures):
    markdown = folder / "reports" / "tiny" / "report.md"
    assert "no head ablation; run h2h ablate-heads tiny, then h2h report" in markdown.read_text()
    done = call(folder, "ablate-heads", "tiny", "--format", "json")
    assert done.exit_code == 0, done.output
    files = sorted((folder / "runs" / "tiny").glob("*/heads.json"))
    assert len(files) == 2
    written = [json.loads(file.read_text()) for file in files]
    assert json.loads(done.stdout) == [
        {"run": file.parent.name, **record} for file, record in zip(files, written, strict=True)
    ]
    for record in written:
        assert len(record["heads"]) == 3 * 2
        assert all(head["entropy"] >= 0 and head["distance"] >= 0 for head in record["heads"])
        assert record["metrics"].keys() >= {"heads/cross/only-one/bleu"}
    with no_figures():
        assert call(folder, "report", "tiny", "--reports", str(folder / "reports")).exit_code == 0
    assert "not yet masked" not in markdown.read_text()
    answer = json.loads((folder / "reports" / "tiny" / "answer.json").read_text())
    (contrast,) = (found for found in answer["contrasts"] if found["expected"])
    cross, encoder = (
        [record["metrics"][f"heads/{role}/only-one/loss"] for record in written] for role in ("cross", "encoder")
    )
    assert contrast["difference"] == pytest.approx((sum(cross) - sum(encoder)) / 2)


@pytest.mark.slow
def test_the_figure_of_the_report_has_every_head(folder, tmp_path):
    assert call(folder, "ablate-heads", "tiny").exit_code == 0
    assert call(folder, "report", "tiny", "--reports", str(tmp_path)).exit_code == 0
    written = [json.loads(file.read_text()) for file in sorted((folder / "runs" / "tiny").glob("*/heads.json"))]
    picture = (tmp_path / "tiny" / "figures" / "heads.svg").read_text()
    assert picture.count("without this head, seed") == 2 * 3 * 2
    assert picture.count("with only this head, seed") == 2 * 3 * 2
    assert {f"{head['role']} {head['layer']}" for head in written[0]["heads"]} == {"encoder 0", "decoder 0", "cross 0"}
    assert "cross-attention, layer 0" in picture
    assert "layer 1" not in picture
    for record in written:
        for head in record["heads"]:
            loss = show(head["without-one"]["loss"], "test/loss", signed=True)
            assert f"head {head['head']}: {loss}, entropy {head['entropy']:.2f}" in picture
    assert "Layers and heads are numbered from 0." in (tmp_path / "tiny" / "report.md").read_text()


def test_a_run_is_selected_by_the_start_of_its_directory_and_measured_once(folder, record_checksums):
    (name,) = (path.name for path in (folder / "runs" / "tiny").glob("*-s1-*"))
    call(folder, "ablate-heads", name[:-4], "--no-decode", "--fresh")
    file = folder / "runs" / "tiny" / name / "heads.json"
    assert set(json.loads(file.read_text())["whole"]) == {"loss"}
    file.write_text(file.read_text().replace('"format": 1', '"format": 1, "kept": true'))
    record_checksums(file.parent)
    shown = call(folder, "ablate-heads", name, "--no-decode")
    assert "encoder" in shown.output
    assert '"kept": true' in file.read_text()
    call(folder, "ablate-heads", name, "--fresh")
    assert "bleu" in json.loads(file.read_text())["whole"]


def test_a_measurement_without_translations_is_repeated_with_bleu(folder, monkeypatch):
    monkeypatch.setenv("H2H_CACHE", str(folder / "cache"))
    (path,) = (folder / "runs" / "tiny").glob("*-s2-*")
    assert "bleu" not in masked_heads(path, decode=False, fresh=True)["whole"]
    record = masked_heads(path)
    assert "bleu" in record["whole"]
    assert json.loads((path / "heads.json").read_text()) == record


def test_a_run_that_another_process_writes_is_not_measured(folder, monkeypatch):
    monkeypatch.setenv("H2H_CACHE", str(folder / "cache"))
    monkeypatch.setattr(head_ablation, "head_effects", lambda *arguments: pytest.fail("the run was measured"))
    (path,) = (folder / "runs" / "tiny").glob("*-s2-*")
    with Lease(path), pytest.raises(HeadToHeadError, match="; wait for that process or end it"):
        masked_heads(path, fresh=True)


def test_an_experiment_without_a_finished_run_is_an_error(folder, bare_experiment):
    planned = folder / "runs" / "planned"
    planned.mkdir()
    (planned / "experiment.json").write_text(
        bare_experiment("planned", "Which?", {"none": None}, [("none", 1, "none-s1")])
    )
    done = call(folder, "ablate-heads", "planned")
    assert done.exit_code == 2
    assert done.output == ("h2h: no run of 'planned' is DONE; train it with h2h run FILE\n")
    unknown = call(folder, "ablate-heads", "nothing")
    assert unknown.exit_code == 2
    assert unknown.output.startswith("h2h: no run 'nothing' in ")


def test_a_run_without_data_splits_is_an_error(folder, monkeypatch):
    """An imported checkpoint has vocabularies and no splits."""
    monkeypatch.setenv("H2H_CACHE", str(folder / "cache"))
    (path,) = (folder / "runs" / "tiny").glob("*-s2-*")
    run = head_ablation.load(path)
    monkeypatch.setattr(head_ablation, "load", lambda path: replace(run, words=replace(run.data, splits={})))
    with pytest.raises(HeadToHeadError, match="was imported without sentences; ablating heads requires"):
        masked_heads(path, fresh=True)
