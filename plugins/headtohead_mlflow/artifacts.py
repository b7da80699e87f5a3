"""The artifacts of a run in a folder, so that a single call uploads them.

``run/`` holds the unchanged files of the run directory. MLflow displays ``translations.json``, and in ``images/`` the
files that its ``log_image`` writes; a test compares the format, which has changed before.
"""

from __future__ import annotations

import json
import math
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from headtohead.figures.sheet import CELL, grid, tiles
from headtohead.storage.attention_maps import load_maps
from headtohead.storage.run import CHECKPOINT, METRICS, RUN, STATUS
from headtohead.storage.translations import COLUMNS, joined_references, read_translations
from headtohead.tracking.study import TrackedRun, TrackedStudy, logger_file

RAW = "run"
TABLE = "translations.json"
MAX_PIXELS = 2_000_000
MAX_SIDE = 1024
"""Approximate maximum of width and height of sheets without tokens."""
_IMAGE_NAMES = uuid.UUID("6f0d2c1e-6a55-4d0e-9b7e-0d2a3a5f4c11")


def image_key(role: str) -> str:
    """Return the key of the images of a role; MLflow sorts sections by name, and this one follows train and valid."""
    return f"weights/attention-{role}"


@contextmanager
def scratch(study: TrackedStudy) -> Iterator[Path]:
    """Have an empty folder in the block; a killed process leaves it to the next one.

    Only the process that logs the study to MLflow uses it.
    """
    folder = logger_file(study.path, "mlflow-files")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def stage(run: TrackedRun, into: Path, moment: int) -> tuple[dict[str, str], dict[str, str]]:
    """Write the artifacts of a run below a folder: copies of its files, images of attention, a table of translations.

    Recorded files that are missing are left out, and the weights of a reused run.

    Args:
        run: The run.
        into: An existing folder.
        moment: The timestamp of the images, in milliseconds since 1970.

    Returns:
        The tags that make MLflow display images and tables, and the path of the image of each role by its key, for the
        first probe sentence that has one.

    Raises:
        HeadToHeadError: If a file of the run cannot be read or has changed since it was written.
    """
    for name in _recorded_files(run):
        path = run.verified(name) if run.has(name) else run.path / name
        if path.is_file():
            target = into / RAW / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    tags = {}
    images: dict[str, str] = {}
    for probe in load_maps(run.path):
        tags["mlflow.loggedImages"] = "True"
        for role, maps in probe.weights.items():
            key = image_key(role)
            sheet = contact_sheet(maps, *probe.tokens(role))
            file = write_image(sheet, into / "images", key, probe.index, moment, run.run_hash)
            images.setdefault(key, f"images/{file}")
    translations = read_translations(run.path)
    if translations:
        rows = []
        for row in translations:
            references = joined_references(row.references)
            rows.append([row.source, references, row.hypothesis, int(row.exact)])
        table = json.dumps({"columns": COLUMNS, "data": rows}, ensure_ascii=False)
        (into / TABLE).write_text(table, encoding="utf-8")
        tags["mlflow.loggedArtifacts"] = json.dumps([{"path": TABLE, "type": "table"}])
    return tags, images


def _recorded_files(run: TrackedRun) -> list[str]:
    """Return the names of the files of a run directory; the experiment that trained a reused run has its weights."""
    results = {*run.status.files}
    if run.reused_from:
        results.discard(CHECKPOINT)
    return [RUN, STATUS, METRICS, *sorted(results)]


def write_image(
    image: Image.Image, folder: Path, key: str, step: int, moment: int, owner: str
) -> str:
    """Write an image with a step in the format of ``MlflowClient.log_image``; return its file name.

    The file name depends only on run, key and step, so a repeated upload overwrites the image.
    """
    folder.mkdir(parents=True, exist_ok=True)
    unique = uuid.uuid5(_IMAGE_NAMES, f"{owner} {key} {step}")
    stem = f"{key.replace('/', '~')}+step+{step}+timestamp+{moment}+{unique}"
    image.save(folder / f"{stem}.png", compress_level=1)
    small = image.convert("RGB")
    small.save(folder / f"{stem}+compressed.webp", lossless=True, quality=0, method=0)
    return f"{stem}.png"


def contact_sheet(
    maps: NDArray[np.float32], rows: Sequence[str], columns: Sequence[str]
) -> Image.Image:
    """Draw ``maps`` [layer, head, query, key] with their tokens, as square as possible, for MLflow's square frames.

    A row has heads of a single layer, as many in each row. Sheets above ``MAX_PIXELS`` have small cells without tokens.

    Args:
        maps: The weights; at least one layer and head.
        rows: The tokens of the queries.
        columns: The tokens of the keys.
    """
    layers, heads, queries, keys = maps.shape
    cell = CELL
    width, height = tiles(maps[:1, :1], rows, columns)[0].size
    if layers * heads * width * height > MAX_PIXELS:
        fitting = min(MAX_SIDE // (heads * keys), MAX_SIDE // (layers * queries), CELL - 1)
        cell = max(1, fitting)
    drawn = tiles(maps, rows, columns, cell=cell)
    width, height = drawn[0].size

    def squareness(heads_per_row: int) -> float:
        """Return how far the sheet is from a square: 0 for a square."""
        sheet_rows = layers * heads / heads_per_row
        return abs(math.log(heads_per_row * width / (sheet_rows * height)))

    divisors = [number for number in range(1, heads + 1) if heads % number == 0]
    return grid(drawn, min(divisors, key=squareness))
