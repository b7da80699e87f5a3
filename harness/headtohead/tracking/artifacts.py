"""The artifacts of a run in a folder, so that a single call uploads them.

``run/`` holds the unchanged files of the run directory. MLflow displays ``translations.json``, and in ``images/`` the
files that its ``log_image`` writes; a test compares the format, which has changed before.
"""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from headtohead.figures.heat_map import ColourRange, cell_colours
from headtohead.storage.attention_maps import load_maps
from headtohead.storage.run import CHECKPOINT, METRICS, RUN, STATUS
from headtohead.storage.translations import COLUMNS, joined_references, read_translations
from headtohead.tracking.study import TrackedRun

RAW = "run"
TABLE = "translations.json"
SHEET_PIXELS = 256
GAP = 2
_IMAGE_NAMES = uuid.UUID("6f0d2c1e-6a55-4d0e-9b7e-0d2a3a5f4c11")


def stage(run: TrackedRun, into: Path, moment: int) -> dict[str, str]:
    """Write the artifacts of a run below a folder; return the tags that make MLflow display images and tables.

    ``moment`` is the images' timestamp in milliseconds.
    """
    omitted = {CHECKPOINT} if run.reused_from else set()  # the experiment that trained the run has its weights
    for name in [RUN, STATUS, METRICS, *sorted({*run.status.files} - omitted)]:
        path = run.verified(name) if run.has(name) else run.path / name
        if path.is_file():
            (into / RAW / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, into / RAW / name)
    tags = {}
    for probe in load_maps(run.path):
        kinds = probe.probe.get("weights", {})
        for role, maps in probe.weights.items():
            signed = kinds[role] == "signed" if role in kinds else probe.probe["signed"]
            sheet = contact_sheet(maps, signed=signed)
            write_image(sheet, into / "images", f"attention/{role}", probe.index, moment, run.run_hash)
            tags["mlflow.loggedImages"] = "True"
    if translations := read_translations(run.path):
        rows = [[row.source, joined_references(row.references), row.hypothesis, int(row.exact)] for row in translations]
        (into / TABLE).write_text(json.dumps({"columns": COLUMNS, "data": rows}, ensure_ascii=False), encoding="utf-8")
        tags["mlflow.loggedArtifacts"] = json.dumps([{"path": TABLE, "type": "table"}])
    return tags


def write_image(image: Image.Image, folder: Path, key: str, step: int, moment: int, owner: str) -> None:
    """Write an image with a step in the format of ``MlflowClient.log_image``.

    The file name depends only on run, key and step, so a repeated upload overwrites the image.
    """
    folder.mkdir(parents=True, exist_ok=True)
    unique = uuid.uuid5(_IMAGE_NAMES, f"{owner} {key} {step}")
    stem = f"{key.replace('/', '~')}+step+{step}+timestamp+{moment}+{unique}"
    image.save(folder / f"{stem}.png", compress_level=1)
    small = image.convert("RGB")
    small.save(folder / f"{stem}+compressed.webp", lossless=True, quality=0, method=0)


def contact_sheet(maps: NDArray[np.float32], *, signed: bool) -> Image.Image:
    """Draw ``maps`` [layer, head, query, key], enlarged without smoothing to about 256 pixels.

    A row per layer and a column per head with white gaps, without labels, for MLflow's image grid.
    """
    layers, heads, queries, keys = maps.shape
    cell = min((SHEET_PIXELS - GAP * heads) // (heads * keys), (SHEET_PIXELS - GAP * layers) // (layers * queries))
    cell = max(1, cell)
    largest = max(float(np.abs(np.nan_to_num(maps)).max(initial=0.0)), 1e-9)
    colours = cell_colours(maps, ColourRange(-largest, largest) if signed else ColourRange(0.0, 1.0))
    tiles = np.full((layers, heads, queries * cell + GAP, keys * cell + GAP, 3), 255, np.uint8)
    tiles[:, :, : queries * cell, : keys * cell] = colours.repeat(cell, axis=2).repeat(cell, axis=3)
    return Image.fromarray(tiles.transpose(0, 2, 1, 3, 4).reshape(layers * tiles.shape[2], heads * tiles.shape[3], 3))
