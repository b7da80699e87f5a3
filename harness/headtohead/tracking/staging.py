"""Staging of a run's artifacts in a folder, so that a single call uploads them.

``run/`` holds the unchanged files of the run directory, for its reconstruction. ``figures/`` and ``translations.json``
are displayed in MLflow. ``images/`` has the files that MLflow's ``log_image`` writes; a test compares the format, which
has changed before.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args
from xml.sax.saxutils import escape

from PIL import Image

from headtohead.escaping import visible
from headtohead.schema.roles import Role
from headtohead.storage.attention_maps import ProbeMaps, load_maps
from headtohead.storage.run import CHECKPOINT, METRICS, RUN, STATUS, VOCABULARY
from headtohead.storage.translations import COLUMNS, joined_references, read_translations
from headtohead.tracking.pictures import contact_sheet, labelled_sheet
from headtohead.tracking.rundirs import TrackedRun

RAW = "run"
TABLE = "translations.json"
COPIED = (RUN, STATUS, METRICS)
MODEL_FILES = (CHECKPOINT, VOCABULARY)
_IMAGE_NAMES = uuid.UUID("6f0d2c1e-6a55-4d0e-9b7e-0d2a3a5f4c11")


@dataclass(frozen=True)
class Staged:
    """Whether a staged folder has images and a table, which MLflow expects as tags."""

    images: bool
    table: bool

    def tags(self) -> dict[str, str]:
        """Return the tags that make MLflow display images and tables."""
        tags = {}
        if self.images:
            tags["mlflow.loggedImages"] = "True"
        if self.table:
            tags["mlflow.loggedArtifacts"] = json.dumps([{"path": TABLE, "type": "table"}])
        return tags


def stage(run: TrackedRun, into: Path, moment: int) -> Staged:
    """Write the artifacts of a run below ``into``; ``moment`` is the images' timestamp in milliseconds."""
    _copy_raw(run, into / RAW)
    images = _write_attention(run, into, moment)
    table = _write_table(run.path, into / TABLE)
    results = run.results
    scored = [bucket for bucket in (results.buckets if results else ()) if "exact_match" in bucket]
    if scored:
        _write_buckets(scored, into / "figures/exact-match-by-source-length.svg")
    return Staged(images, table)


def stage_model(run: TrackedRun, into: Path) -> None:
    """Copy the files of the run's model into a folder."""
    shutil.copyfile(run.path / RUN, into / RUN)
    for name in MODEL_FILES:
        if run.has(name):
            shutil.copyfile(run.verified(name), into / name)


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


def _copy_raw(run: TrackedRun, into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        if (run.path / name).is_file():
            shutil.copyfile(run.path / name, into / name)
    for name in sorted({*run.status.files} - {CHECKPOINT}):
        (into / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(run.verified(name), into / name)


def _write_attention(run: TrackedRun, into: Path, moment: int) -> bool:
    probes = load_maps(run.path)
    if probes:
        (into / "figures").mkdir(exist_ok=True)
    for probe in probes:
        for role in get_args(Role):
            if role in probe.weights:
                _write_role(probe, role, run, into, moment)
    return any(probe.weights for probe in probes)


def _write_role(probe: ProbeMaps, role: Role, run: TrackedRun, into: Path, moment: int) -> None:
    kinds, maps = probe.probe.get("weights", {}), probe.weights[role]
    signed = kinds[role] == "signed" if role in kinds else probe.probe["signed"]
    sheet = contact_sheet(maps, signed=signed)
    write_image(sheet, into / "images", f"attention/{role}", probe.index, moment, run.run_hash)
    queries, keys = probe.tokens(role)
    title = f"{role} · {run.variant.title} · seed {run.seed}"
    labelled = labelled_sheet(maps, queries, keys, title=title, signed=signed)
    labelled.save(into / f"figures/attention-{role}-probe-{probe.index}.png", compress_level=1)


def _write_table(run: Path, into: Path) -> bool:
    translations = read_translations(run)
    if not translations:
        return False
    rows = [[row.source, joined_references(row.references), row.hypothesis, int(row.exact)] for row in translations]
    content = {"columns": COLUMNS, "data": rows}
    into.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return True


def _write_buckets(buckets: Sequence[Mapping[str, Any]], into: Path) -> None:
    into.parent.mkdir(exist_ok=True)
    width, bars = 90, []
    for index, bucket in enumerate(buckets):
        score = float(bucket["exact_match"] or 0)
        left, height = 50 + index * width, 200 * score
        bars.append(
            f'<rect x="{left}" y="{230 - height:.1f}" width="60" height="{height:.1f}" '
            f'fill="#08519c"/><text x="{left + 30}" y="{224 - height:.1f}">{score:.2f}</text>'
            f'<text x="{left + 30}" y="248">{escape(visible(str(bucket["bucket"])))}</text>'
            f'<text x="{left + 30}" y="264" fill="#666">n = {escape(visible(str(bucket["n"])))}</text>'
        )
    total = 70 + len(buckets) * width
    into.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="290" '
        'font-family="sans-serif" font-size="12" text-anchor="middle">'
        f'<rect width="{total}" height="290" fill="white"/>'
        f'<text x="{total / 2}" y="16">exact match by source length, in tokens</text>'
        f'<line x1="40" x2="{total - 10}" y1="230" y2="230" stroke="#333"/>{"".join(bars)}</svg>',
        encoding="utf-8",
    )
