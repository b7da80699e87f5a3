"""Attention maps as images: MLflow's own format, and every weight as a square of a single colour."""

import re
from pathlib import Path

import numpy as np
from matplotlib.colors import to_rgb
from PIL import Image

from headtohead.figures.heat_map import ColourRange, cell_colours
from headtohead.figures.sheet import CELL, tiles
from headtohead.figures.style import MUTED
from headtohead_mlflow.artifacts import contact_sheet, write_image
from headtohead_mlflow.store import open_store

UNIQUE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def test_images_equal_those_of_log_image_and_replace_earlier_images(
    tmp_path: Path, store_uri: str
) -> None:
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


def test_every_weight_is_a_square_of_one_colour_at_its_position_beside_its_tokens() -> None:
    weights = maps()
    rows, columns = ["<sos>", "un", "deux", "trois"], ["a", "b", "c", "d", "sœurs"]
    sheet = np.asarray(contact_sheet(weights, rows, columns))
    tile = np.asarray(tiles(weights, rows, columns)[0])
    height, width = tile.shape[:2]
    across = sheet.shape[1] // width
    assert sheet.shape == (height * 6 // across, width * across, 3)
    colours = cell_colours(weights, ColourRange(-1.0, 1.0))
    muted = [round(255 * channel) for channel in to_rgb(MUTED)]
    frame = np.argwhere((tile == muted).all(axis=2))
    (top, left), (bottom, right) = frame.min(axis=0) + 1, frame.max(axis=0)
    assert (bottom - top, right - left) == (4 * CELL, 5 * CELL)
    for number, (layer, head) in enumerate(np.ndindex(2, 3)):
        own = sheet[number // across * height :, number % across * width :][top:bottom, left:right]
        expected = colours[layer, head].repeat(CELL, axis=0).repeat(CELL, axis=1)
        assert (own == expected).all()
    for labels in (tile[top:bottom, : left - 1], tile[bottom + 1 :, left:right], tile[: top - 1]):
        assert labels.min() < 100


def test_sheets_fit_a_square_frame_and_large_ones_have_small_cells_without_tokens() -> None:
    short = contact_sheet(maps(1, 4, 2, 9), ["a", "b"], list("abcdefghi"))
    assert 0.5 < short.width / short.height < 2
    tokens = [f"token{number}" for number in range(40)]
    large = contact_sheet(maps(6, 8, 40, 40), tokens, tokens)
    assert large.width * large.height < 2_000_000
    assert large.size == (8 * (40 * 3 + 10), 6 * (40 * 3 + 10))
