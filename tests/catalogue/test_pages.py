"""The committed pages are current and complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

from catalogue.content import PAGE_FAMILIES, CatalogueEntry
from catalogue.pages import Files, stale_files, write_files
from catalogue.pictures import HeatMaps, numbers_of, same_numbers, stored_numbers
from headtohead.ownership import claim
from headtohead.plugins.registry import load_registry

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "catalogue"
SHOWN = [
    (entry.family, entry.name)
    for entry in load_registry().all()
    if entry.family in PAGE_FAMILIES and entry.distribution == "headtohead"
]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_written_catalogue_is_current(files: Files) -> None:
    assert list(stale_files(DOCS, files)) == [], "run make docs"


def test_every_entry_has_a_section_with_pictures_or_pairs(entries: list[CatalogueEntry]) -> None:
    assert {(entry.family, entry.name) for entry in entries} == set(SHOWN)
    for entry in entries:
        assert entry.summary, entry.name
        assert entry.pictures or entry.notes or entry.family == "dataset", entry.name
        if entry.family in ("positional", "attention") and entry.name != "none":
            assert entry.formula, f"{entry.name} has no formula()"


@pytest.mark.parametrize("family", PAGE_FAMILIES)
def test_the_pages_link_every_entry(files: Files, family: str) -> None:
    for entry_family, name in SHOWN:
        if entry_family == family:
            assert f"({family}.md#{name})" in str(files["index.md"])
            assert f"\n## {name}\n" in str(files[f"{family}.md"])


def test_the_pages_show_every_picture_and_every_shown_picture_exists(files: Files) -> None:
    shown = {
        name
        for page, text in files.items()
        if isinstance(text, str)
        for name in re.findall(r'src="(pictures/[^"]+)"', text)
    }
    assert shown == {name for name in files if name.startswith("pictures/")}


def test_every_committed_picture_is_a_small_png_of_the_same_width() -> None:
    paths = list((DOCS / "pictures").iterdir())
    assert paths
    for path in paths:
        with Image.open(path) as image:
            assert image.format == "PNG", path.name
            assert image.width == 576, path.name
        assert path.stat().st_size < 30_000, path.name


def test_every_image_of_a_page_has_a_text_alternative(files: Files) -> None:
    for text in files.values():
        if isinstance(text, str):
            assert all(re.search(r'alt="[^"]+"', image) for image in re.findall(r"<img[^>]*>", text))


def test_a_page_or_picture_that_is_not_current_is_listed(files: Files, tmp_path: Path) -> None:
    names = ["positional.md", "pictures/positional-alibi-1.png", "pictures/masking-causal-1.png"]
    few: Files = {name: files[name] for name in names}
    write_files(tmp_path, few)
    assert list(stale_files(tmp_path, few)) == []
    page = tmp_path / "positional.md"
    page.write_text(page.read_text("utf-8").replace("alibi", "alibbi"), "utf-8")
    picture = tmp_path / "pictures" / "positional-alibi-1.png"
    picture.write_bytes((DOCS / "pictures" / "positional-alibi-2.png").read_bytes())
    (tmp_path / "pictures" / "masking-causal-1.png").unlink()
    claim(tmp_path, ["pictures/gone.png"])
    (tmp_path / "pictures" / "gone.png").write_bytes(b"")
    assert set(stale_files(tmp_path, few)) == {*names, "pictures/gone.png"}
    write_files(tmp_path, few)
    assert list(stale_files(tmp_path, few)) == []


def test_a_png_without_numbers_is_not_current(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "pictures" / "positional-alibi-1.png"
    path.parent.mkdir()
    Image.new("RGB", (4, 4)).save(path)
    assert stored_numbers(path) is None
    assert list(stale_files(tmp_path, {"pictures/positional-alibi-1.png": files["pictures/positional-alibi-1.png"]}))


def one_map(value: float | None, title: str = "weights") -> HeatMaps:
    return HeatMaps(title, [("", [[value, 0.0]])], ("a",), ("b", "c"), "query", "key", "weight")


def test_rounding_of_another_machine_does_not_make_a_picture_stale_files() -> None:
    numbers = numbers_of(one_map(0.5))
    assert same_numbers(numbers, numbers_of(one_map(0.5 + 1e-9)))
    assert not same_numbers(numbers, numbers_of(one_map(0.6)))
    assert not same_numbers(numbers, numbers_of(one_map(None)))
    assert not same_numbers(numbers, numbers_of(one_map(0.5, title="biases")))


def test_pages_name_no_path_and_no_object_of_a_machine(files: Files) -> None:
    for name, text in files.items():
        if isinstance(text, str):
            assert not re.search(r"(?<![\w.~/])/(root|home|Users|work|tmp)/", text), name
            assert " at 0x" not in text, name
