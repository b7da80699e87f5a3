"""h2h ablate-heads on trained runs: it writes a file beside each run, and the report includes it."""

import json
from dataclasses import replace

import pytest

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.execution import head_ablation
from headtohead.execution.head_ablation import ablate_heads
from headtohead.storage.leases import Lease
from headtohead.storage.metrics import show
from made.fake_study import edit, experiment_text, record_checksums
from made.study import Study

CONTRAST = {
    "name": "Cross-attention loses most",
    "variant": {},
    "metric": "heads/cross/only-one/loss",
    "against_metric": "heads/encoder/only-one/loss",
    "expect": {"direction": "higher", "source": "Michel et al. 2019, table 2"},
}


@pytest.fixture(scope="module")
def study(tmp_path_factory, h2h_here, no_figures):
    folder = tmp_path_factory.mktemp("heads")
    made = Study(folder, folder / "cache", h2h_here)
    short = {
        "train": {"steps": 6, "evaluate_every": 6},
        "evaluate": {"test_limit": 5, "max_length": 4},
    }
    made.write(base=short, contrasts=[CONTRAST])
    with no_figures():
        made.run()
    return made


def test_every_run_gets_a_file_and_the_report_summarises_them(study, without_figures):
    assert "no head ablation; run h2h ablate-heads tiny, then h2h report" in study.page()
    done = study.h2h("ablate-heads", "tiny", "--format", "json")
    written = [files.read_json(run / "heads.json") for run in study.directories()]
    assert json.loads(done.stdout) == [
        {"run": run.name, **record}
        for run, record in zip(study.directories(), written, strict=True)
    ]
    for record in written:
        assert len(record["heads"]) == 3 * 2
        assert all(head["entropy"] >= 0 and head["distance"] >= 0 for head in record["heads"])
        assert record["metrics"].keys() >= {"heads/cross/only-one/bleu"}
    study.h2h("report", "tiny")
    assert "no head ablation" not in study.page()
    (contrast,) = (found for found in study.answer()["contrasts"] if found["expected"])
    cross, encoder = (
        [record["metrics"][f"heads/{role}/only-one/loss"] for record in written]
        for role in ("cross", "encoder")
    )
    assert contrast["difference"] == pytest.approx((sum(cross) - sum(encoder)) / 2)


@pytest.mark.slow
def test_the_figure_of_the_report_has_every_head(study, tmp_path):
    study.h2h("ablate-heads", "tiny")
    study.h2h("report", "tiny", "--reports", str(tmp_path))
    written = [files.read_json(run / "heads.json") for run in study.directories()]
    picture = (tmp_path / "tiny" / "figures" / "heads.svg").read_text()
    assert picture.count("without this head, seed") == 2 * 3 * 2
    assert picture.count("with only this head, seed") == 2 * 3 * 2
    assert {f"{head['role']} {head['layer']}" for head in written[0]["heads"]} == {
        "encoder 0",
        "decoder 0",
        "cross 0",
    }
    assert "cross-attention, layer 0" in picture
    assert "layer 1" not in picture
    for record in written:
        for head in record["heads"]:
            loss = show(head["without-one"]["loss"], "test/loss", signed=True)
            assert f"head {head['head']}: {loss}, entropy {head['entropy']:.2f}" in picture
    assert "Layers and heads are numbered from 0." in (tmp_path / "tiny" / "report.md").read_text()


def test_a_run_is_selected_by_the_start_of_its_directory_and_measured_once_with_or_without_bleu(
    study,
):
    run = study.directories()[0]
    study.h2h("ablate-heads", run.name[:-4], "--no-decode", "--fresh")
    assert set(files.read_json(run / "heads.json")["whole"]) == {"loss"}
    edit(run / "heads.json", kept=True)
    record_checksums(run)
    assert "encoder" in study.h2h("ablate-heads", run.name, "--no-decode").stdout
    assert files.read_json(run / "heads.json")["kept"]
    study.h2h("ablate-heads", run.name)
    assert "bleu" in files.read_json(run / "heads.json")["whole"]


def test_a_run_that_another_process_writes_is_not_measured(study, monkeypatch):
    monkeypatch.setenv("H2H_CACHE", str(study.cache))
    monkeypatch.setattr(
        head_ablation, "head_effects", lambda *arguments: pytest.fail("the run was measured")
    )
    path = study.directories()[1]
    with Lease(path), pytest.raises(HeadToHeadError, match="; wait for that process or end it"):
        ablate_heads(path, fresh=True)


def test_an_experiment_without_a_finished_run_is_an_error(study):
    planned = study.runs / "planned"
    planned.mkdir()
    text = experiment_text("planned", {"none": None}, [("none", 1, "none-s1")])
    (planned / "experiment.json").write_text(text)
    done = study.h2h("ablate-heads", "planned", code=2)
    assert done.stderr == "h2h: no run of 'planned' is DONE; train it with h2h run FILE\n"
    assert study.h2h("ablate-heads", "nothing", code=2).stderr.startswith(
        "h2h: no run 'nothing' in "
    )


def test_a_run_without_data_splits_is_an_error(study, monkeypatch):
    """An imported checkpoint has vocabularies and no splits."""
    monkeypatch.setenv("H2H_CACHE", str(study.cache))
    path = study.directories()[1]
    run = head_ablation.load(path)
    monkeypatch.setattr(
        head_ablation, "load", lambda path: replace(run, words=replace(run.data, splits={}))
    )
    with pytest.raises(
        HeadToHeadError, match="was imported without sentences; ablating heads requires"
    ):
        ablate_heads(path, fresh=True)
