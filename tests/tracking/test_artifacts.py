"""Attention maps as images: MLflow's own format, and every weight as a square of a single colour."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from matplotlib.colors import to_rgb
from PIL import Image

from headtohead.figures.heat_map import BLUE, HIDDEN, ORANGE, ColourRange, cell_colours
from headtohead.tracking.artifacts import contact_sheet, write_image
from headtohead.tracking.store import open_store

UNIQUE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def test_images_equal_those_of_log_image_and_replace_earlier_images(tmp_path: Path, store_uri: str) -> None:
    levels = np.random.default_rng(1).integers(0, 256, (60, 120, 3), dtype=np.uint8)
    picture, client = Image.fromarray(levels), open_store(store_uri, create=False).client
    run = client.create_run("0")
    client.log_image(run.info.run_id, picture, key="attention/cross", step=3, timestamp=17)
    theirs = _files(Path(client.download_artifacts(run.info.run_id, "images")))
    for _ in range(2):
        write_image(picture, tmp_path / "ours", "attention/cross", 3, 17, "a run's key")
    assert len(list((tmp_path / "ours").iterdir())) == 2
    ours = _files(tmp_path / "ours")
    assert ours.keys() == theirs.keys()
    for name in ours:
        with Image.open(ours[name]) as mine, Image.open(theirs[name]) as other:
            assert mine.format == other.format
            if name.endswith(".png"):
                assert (np.asarray(mine) == np.asarray(other)).all()
    assert client.get_run(run.info.run_id).data.tags["mlflow.loggedImages"] == "True"


def _files(folder: Path) -> dict[str, Path]:
    return {UNIQUE.sub("UNIQUE", path.name): path for path in folder.iterdir()}


def maps(layers: int = 2, heads: int = 3, queries: int = 4, keys: int = 5) -> np.ndarray:
    weights = np.random.default_rng(1).random((layers, heads, queries, keys)).astype(np.float32)
    result: np.ndarray = weights / weights.sum(-1, keepdims=True)
    return result


def test_every_weight_is_a_square_of_one_colour_at_its_position() -> None:
    weights = maps()
    pixels = np.asarray(contact_sheet(weights, signed=False))
    colours = cell_colours(weights, ColourRange(0.0, 1.0))
    cell = (pixels.shape[1] - 2 * 3) // (3 * 5)
    for layer, head, query, key in np.ndindex(weights.shape):
        top, left = layer * (4 * cell + 2) + query * cell, head * (5 * cell + 2) + key * cell
        tile = pixels[top : top + cell, left : left + cell]
        assert (tile == colours[layer, head, query, key]).all()


def test_signed_maps_are_orange_white_and_blue_and_masked_cells_grey() -> None:
    pixels = np.asarray(contact_sheet(np.array([[[[-2.0, 0.0, 2.0]]]], dtype=np.float32), signed=True))
    colours = [pixels[0, x].tolist() for x in (0, pixels.shape[1] // 2, pixels.shape[1] - 3)]
    assert colours == [_pixel(ORANGE), [255, 255, 255], _pixel(BLUE)]
    masked = contact_sheet(np.full((1, 1, 2, 2), np.nan, dtype=np.float32), signed=False)
    assert np.asarray(masked)[0, 0].tolist() == _pixel(HIDDEN)


def _pixel(colour: object) -> list[int]:
    return [round(255 * channel) for channel in to_rgb(colour)]
