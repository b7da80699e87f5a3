"""The runs folder can be restored from a store, file by file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headtohead.errors import HeadToHeadError
from headtohead.storage.run import StatusRecord
from headtohead.tracking import retrieval
from headtohead.tracking.retrieval import materialise
from headtohead.tracking.shipping import ship
from made import case_table

MakeExperiment = Callable[..., Path]
AXES = {"positional": ["rotary", "none"]}


@pytest.fixture
def folder(make_experiment: MakeExperiment, store_uri: str) -> Path:
    folder = make_experiment(seeds=1, axes=AXES, states={(1, 1): "DIVERGED"})
    ship(folder, store_uri)
    return folder


@case_table("through_the_client", [False, True], default=1)
def test_restored_files_equal_shipped_files(
    tmp_path: Path, store_uri: str, folder: Path, through_the_client: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if through_the_client:
        monkeypatch.setattr(retrieval, "READABLE_SCHEMAS", frozenset())
    back = materialise(store_uri, "quickstart", tmp_path / "back")
    files = [path.relative_to(back) for path in back.rglob("*") if path.is_file()]
    assert len(files) > 10
    for name in files:
        if name.name != "status.json":
            assert (back / name).read_bytes() == (folder / name).read_bytes()
            continue
        restored, shipped = (StatusRecord.model_validate_json((root / name).read_text()) for root in (back, folder))
        present = {file: sha256 for file, sha256 in shipped.files.items() if file != "checkpoint.safetensors"}
        assert restored == shipped.model_copy(update={"files": present})
    left = {path.relative_to(folder) for path in folder.rglob("*.*") if path.is_file()}
    names = {path.name for path in left - set(files)}
    assert names == {"1.log", "checkpoint.safetensors", "mlflow.json"}


@pytest.mark.slow
def test_restoring_does_not_change_the_store(tmp_path: Path, store_uri: str, folder: Path) -> None:
    store = Path(store_uri.removeprefix("sqlite:///"))
    before = store.read_bytes()
    materialise(store_uri, "quickstart", tmp_path / "back")
    assert store.read_bytes() == before


@pytest.mark.slow
def test_the_error_for_an_unknown_study_suggests_the_nearest(tmp_path: Path, store_uri: str, folder: Path) -> None:
    with pytest.raises(HeadToHeadError, match=r"no experiment 'quikstart'.*did you mean 'quickstart'"):
        materialise(store_uri, "quikstart", tmp_path / "back")


def test_a_folder_that_holds_the_experiment_is_not_written_over(store_uri: str, folder: Path) -> None:
    with pytest.raises(HeadToHeadError, match="already exists"):
        materialise(store_uri, "quickstart", folder.parent)


@pytest.mark.slow
def test_a_store_with_moved_artifacts_is_one_line(tmp_path: Path, store_uri: str, folder: Path) -> None:
    (tmp_path / "mlruns-artifacts").rename(tmp_path / "elsewhere")
    with pytest.raises(HeadToHeadError, match="restore the folder if it was moved"):
        materialise(store_uri, "quickstart", tmp_path / "back")
