"""A study that MLflow has as it is costs one look into the store: no process, and no import of mlflow."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient

from headtohead.plugin import Answer
from headtohead.tracking import shipper
from headtohead.tracking.command import CommandLoggers
from headtohead.tracking.shipping import ship
from headtohead.tracking.study import TrackedStudy
from headtohead_mlflow.completeness import store_has
from made import case_table
from made.fake_study import Study, edit, write_study

ANSWER = Answer(
    text="Rotary is better.",
    limits="",
    rows=[],
    cautions=[],
    setup="",
    scores={},
    contrasts=[],
    verdicts={},
    report={},
)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory, store_template: Path) -> Path:
    """A folder with a study of two runs, its report of one file, and a store that has both."""
    root = tmp_path_factory.mktemp("shipped")
    uri = f"sqlite:///{shutil.copyfile(store_template, root / 'mlflow.db')}"
    (root / "index.html").write_text("<p>Rotary is better.</p>")
    study = Study(seeds=(1,), axes={"positional": ["rotary", "none"]}, maps=False)
    folder = write_study(root / "runs", study)
    ship(folder, uri, answer=answer_of(folder))
    return root


@pytest.fixture
def folder(shipped: Path, tmp_path: Path) -> Path:
    """The study in a copy of the folder."""
    shutil.copytree(shipped, tmp_path, dirs_exist_ok=True)
    return tmp_path / "runs" / "quickstart"


@pytest.fixture
def store_uri(tmp_path: Path) -> str:
    """The URI of the store in the copy of the folder."""
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


def answer_of(folder: Path) -> Answer:
    """Return the answer with the page beside the runs folder of a study."""
    return replace(ANSWER, report={"index.html": folder.parent.parent / "index.html"})


def has_all(folder: Path, answer: Answer | None = None) -> bool:
    """Return whether the store beside the runs has a study; by default with its answer."""
    uri = f"sqlite:///{folder.parent.parent / 'mlflow.db'}"
    return store_has(TrackedStudy.read(folder), answer or answer_of(folder), uri)


def test_a_store_has_a_study_until_the_study_changes(folder: Path, store_uri: str) -> None:
    assert has_all(folder)
    assert not has_all(folder, replace(answer_of(folder), text="None is better."))
    page = folder.parent.parent / "index.html"
    page.write_text("<p>None is better.</p>")
    assert not has_all(folder)
    page.write_text("<p>Rotary is better.</p>")
    assert has_all(folder)
    (run, *_) = folder.glob("*/status.json")
    edit(run, attempt=2)
    assert not has_all(folder)
    ship(folder, store_uri, answer=answer_of(folder))
    assert has_all(folder)
    edit(folder / "experiment.json", question="Another question?")
    assert not has_all(folder)


def _summary(client: MlflowClient) -> str:
    index = client.get_experiment_by_name("headtohead studies")
    (summary,) = client.search_runs([index.experiment_id])
    return str(summary.info.run_id)


def _delete_run(client: MlflowClient, experiment: str) -> None:
    client.delete_run(client.search_runs([experiment])[0].info.run_id)


def _reopen_run(client: MlflowClient, experiment: str) -> None:
    client.update_run(client.search_runs([experiment])[0].info.run_id, "RUNNING")


def _delete_summary(client: MlflowClient, experiment: str) -> None:
    client.delete_run(_summary(client))


def _delete_experiment(client: MlflowClient, experiment: str) -> None:
    client.delete_experiment(experiment)


def _give_to_another_study(client: MlflowClient, experiment: str) -> None:
    client.set_experiment_tag(experiment, "h2h.study_id", "another")


@case_table(
    "change",
    [_delete_run, _delete_summary, _reopen_run, _delete_experiment, _give_to_another_study],
    default=2,
)
def test_a_store_lacks_a_study_of_which_a_part_was_deleted(
    folder: Path, store_uri: str, change: Callable[[MlflowClient, str], None]
) -> None:
    client = MlflowClient(store_uri)
    change(client, client.get_experiment_by_name(folder.name).experiment_id)
    assert not has_all(folder)


def test_an_interrupted_pass_leaves_a_study_incomplete(
    folder: Path, store_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("headtohead_mlflow.study_logger.log_comparisons", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ship(folder, store_uri, answer=ANSWER)
    assert not has_all(folder)


def test_a_store_that_cannot_be_read_lacks_every_study(folder: Path) -> None:
    database = folder.parent.parent / "mlflow.db"
    database.write_bytes(b"no database" * 1000)
    assert not has_all(folder)
    database.unlink()
    assert not has_all(folder)


def test_a_command_starts_a_logger_only_if_something_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Path] = []
    monkeypatch.setattr(shipper, "start_shipper", lambda path, name: started.append(path))
    lines: list[str] = []
    loggers = CommandLoggers(["mlflow"], folder.parent, lines.append)
    loggers.follow(folder)
    loggers.close(answer_of(folder))
    loggers.finish(folder.name, folder.name)
    assert started == []
    (line,) = lines
    assert line.startswith("mlflow: all runs are logged to sqlite:")
    loggers = CommandLoggers(["mlflow"], folder.parent, lines.append)
    loggers.follow(folder)
    loggers.close(replace(answer_of(folder), text="None is better."))
    assert started == [folder]
    loggers = CommandLoggers(["mlflow"], folder.parent, lines.append)
    loggers.follow(folder)
    loggers.start()  # something trains
    loggers.close(answer_of(folder))
    assert started == [folder, folder]


@pytest.mark.slow
def test_the_look_into_the_store_imports_no_mlflow(folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from headtohead_mlflow.entry import MlflowLogger\n"
        "from headtohead.tracking.study import TrackedStudy\n"
        "MlflowLogger.has_all(TrackedStudy.read(Path(sys.argv[1])), None)\n"
        "assert 'mlflow' not in sys.modules and 'sqlalchemy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)
