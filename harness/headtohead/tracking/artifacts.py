"""The artifacts of a run in a folder, so that a single call uploads them.

``run/`` holds the unchanged files of the run directory. MLflow displays ``translations.json``, and in ``images/`` the
files that its ``log_image`` writes; a test compares the format, which has changed before.
"""

from __future__ import annotations

import json
import math
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from headtohead.figures.sheet import CELL, grid, tiles
from headtohead.storage.attention_maps import load_maps
from headtohead.storage.run import CHECKPOINT, METRICS, RUN, STATUS
from headtohead.storage.translations import COLUMNS, joined_references, read_translations
from headtohead.tracking.study import TrackedRun

RAW = "run"
TABLE = "translations.json"
MAX_PIXELS = 2_000_000
MAX_SIDE = 1024
"""Approximate maximum of width and height of sheets without tokens."""
_IMAGE_NAMES = uuid.UUID("6f0d2c1e-6a55-4d0e-9b7e-0d2a3a5f4c11")


def stage(run: TrackedRun, into: Path, moment: int) -> tuple[dict[str, str], dict[str, str]]:
    """Write the artifacts of a run below a folder.

    Return the tags that make MLflow display images and tables, and the images of the first probe by name.

    ``moment`` is the images' timestamp in milliseconds.
    """
    omitted = (
        {CHECKPOINT} if run.reused_from else set()
    )  # the experiment that trained the run has its weights
    for name in [RUN, STATUS, METRICS, *sorted({*run.status.files} - omitted)]:
        path = run.verified(name) if run.has(name) else run.path / name
        if path.is_file():
            (into / RAW / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, into / RAW / name)
    tags, images = dict[str, str](), dict[str, str]()
    for probe in load_maps(run.path):
        tags["mlflow.loggedImages"] = "True"
        for role, maps in probe.weights.items():
            sheet = contact_sheet(maps, *probe.tokens(role))
            file = write_image(
                sheet, into / "images", f"attention/{role}", probe.index, moment, run.run_hash
            )
            images.setdefault(f"attention/{role}", f"images/{file}")
    if translations := read_translations(run.path):
        rows = [
            [row.source, joined_references(row.references), row.hypothesis, int(row.exact)]
            for row in translations
        ]
        (into / TABLE).write_text(
            json.dumps({"columns": COLUMNS, "data": rows}, ensure_ascii=False), encoding="utf-8"
        )
        tags["mlflow.loggedArtifacts"] = json.dumps([{"path": TABLE, "type": "table"}])
    return tags, images


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

    A row has heads of a single layer. Sheets above ``MAX_PIXELS`` have small cells without tokens.
    """
    (layers, heads, queries, keys), cell = maps.shape, CELL
    width, height = tiles(maps[:1, :1], rows, columns)[0].size
    if layers * heads * width * height > MAX_PIXELS:
        cell = max(1, min(MAX_SIDE // (heads * keys), MAX_SIDE // (layers * queries), CELL - 1))
    drawn = tiles(maps, rows, columns, cell=cell)
    width, height = drawn[0].size
    divisors = [number for number in range(1, heads + 1) if heads % number == 0]
    return grid(
        drawn, min(divisors, key=lambda n: abs(math.log(n * width / (layers * heads / n * height))))
    )
