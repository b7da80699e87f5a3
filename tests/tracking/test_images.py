"""Stepped images are written as files with the names and content that MLflow's own call writes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from headtohead.tracking.staging import write_image
from headtohead.tracking.store import open_store

UNIQUE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture
def picture() -> Image.Image:
    levels = np.random.default_rng(1).integers(0, 256, (60, 120, 3), dtype=np.uint8)
    return Image.fromarray(levels)


def test_files_equal_those_of_log_image(tmp_path: Path, store_uri: str, picture: Image.Image) -> None:
    client = open_store(store_uri, create=False).client
    run = client.create_run("0")
    client.log_image(run.info.run_id, picture, key="attention/cross", step=3, timestamp=17)
    theirs = _files(Path(client.download_artifacts(run.info.run_id, "images")))
    write_image(picture, tmp_path / "ours", "attention/cross", 3, 17, "a run's key")
    ours = _files(tmp_path / "ours")
    assert ours.keys() == theirs.keys()
    for name in ours:
        with Image.open(ours[name]) as mine, Image.open(theirs[name]) as other:
            assert mine.format == other.format
            if name.endswith(".png"):
                assert (np.asarray(mine) == np.asarray(other)).all()
    assert client.get_run(run.info.run_id).data.tags["mlflow.loggedImages"] == "True"


def test_writing_an_image_again_replaces_it(tmp_path: Path, picture: Image.Image) -> None:
    for _ in range(2):
        write_image(picture, tmp_path, "attention/cross", 0, 17, "a run's key")
    write_image(picture, tmp_path, "attention/cross", 1, 17, "a run's key")
    assert len(list(tmp_path.iterdir())) == 2 * 2


def _files(folder: Path) -> dict[str, Path]:
    return {UNIQUE.sub("UNIQUE", path.name): path for path in folder.iterdir()}
