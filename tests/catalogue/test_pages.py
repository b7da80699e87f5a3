"""The written pages are current, whole, and say of each entry what the registry says."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path

import pytest

from headtohead.plugins.registry import load_registry
from headtohead.tools.catalogue.content import FAMILIES, Section
from headtohead.tools.catalogue.writing import same_picture, stale, write

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "catalogue"
SHOWN = [
    (one.family, one.name)
    for one in load_registry().all()
    if one.family in FAMILIES and one.distribution == "headtohead"
]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_written_catalogue_is_current(files: Mapping[str, str]) -> None:
    assert list(stale(DOCS, files)) == [], "type make docs"


def test_every_entry_has_a_section_a_card_and_a_picture_or_pairs(made: list[Section]) -> None:
    assert {(one.family, one.name) for one in made} == set(SHOWN)
    for one in made:
        assert one.summary, one.name
        assert one.card, one.name
        assert one.pictures or one.family == "dataset", one.name
        if one.family in ("positional", "attention") and one.name != "none":
            assert one.formula, f"{one.name} has no formula()"


@pytest.mark.parametrize("family", FAMILIES)
def test_the_pages_link_every_entry(files: Mapping[str, str], family: str) -> None:
    for one_family, name in SHOWN:
        if one_family == family:
            assert f"{family}.md#{name}" in files["index.md"]
            assert f"\n## {name}\n" in files[f"{family}.md"]
            assert f'id="{family}-{name}"' in files["all.html"]


def test_every_picture_that_a_page_shows_is_written_and_the_other_way_round(files: Mapping[str, str]) -> None:
    shown = {
        name
        for page, text in files.items()
        if page.endswith(".md")
        for name in re.findall(r'(?:src="|\]\()(pictures/[^")]+)', text)
    }
    assert shown == {name for name in files if name.endswith(".svg")}


def test_every_picture_is_sound_light_and_says_what_it_shows(files: Mapping[str, str]) -> None:
    for name, text in files.items():
        if name.endswith(".svg"):
            root = ET.fromstring(text)
            assert root.get("aria-label"), name
            first = root[0]
            assert (first.tag.split("}")[-1], first.get("fill")) == ("rect", "#ffffff"), name
            assert len(text) < 40_000, name


def test_all_words_of_a_picture_stand_inside_it(files: Mapping[str, str]) -> None:
    """A letter is at most 0.66 of its size wide in the fonts that are named."""
    for name, text in files.items():
        if not name.endswith(".svg"):
            continue
        root = ET.fromstring(text)
        width, height = (float(str(root.get(side))) for side in ("width", "height"))
        for one in root.iter("{http://www.w3.org/2000/svg}text"):
            x, y = float(str(one.get("x"))), float(str(one.get("y")))
            long = 0.55 * float(one.get("font-size", "10")) * len(one.text or "")
            back = {"middle": long / 2, "end": long}.get(str(one.get("text-anchor")), 0.0)
            if one.get("transform"):
                assert y + back - long >= -2, (name, one.text)
                assert y + back <= height + 2, (name, one.text)
            else:
                assert x - back >= -2, (name, one.text)
                assert x - back + long <= width + 2, (name, one.text)
            assert 0 <= y <= height, (name, one.text)


def test_the_catalogue_is_small(files: Mapping[str, str]) -> None:
    assert sum(len(text.encode()) for text in files.values()) < 3_000_000


def test_the_html_page_fetches_nothing(files: Mapping[str, str]) -> None:
    page = files["all.html"]
    assert not re.search(r"<(?:img|script|link|iframe)\b|url\(|@import", page)
    assert 'name="viewport"' in page
    addresses = set(re.findall(r'href="([^"#]+)', page))
    assert all(one.startswith("https://arxiv.org/abs/") for one in addresses)
    targets = set(re.findall(r'href="#([^"]+)"', page))
    assert targets <= set(re.findall(r'id="([^"]+)"', page))


def test_a_page_or_picture_that_is_not_current_is_told(files: Mapping[str, str], tmp_path: Path) -> None:
    write(tmp_path, files)
    assert list(stale(tmp_path, files)) == []
    page = tmp_path / "positional.md"
    page.write_text(page.read_text("utf-8").replace("alibi", "alibbi"), "utf-8")
    picture = tmp_path / "pictures" / "positional-alibi-1.svg"
    picture.write_text(picture.read_text("utf-8").replace('"#ffffff" d="', '"#d55e00" d="'), "utf-8")
    (tmp_path / "pictures" / "masking-causal.svg").unlink()
    (tmp_path / "pictures" / "gone.svg").write_text("", "utf-8")
    assert set(stale(tmp_path, files)) == {
        "positional.md",
        "pictures/positional-alibi-1.svg",
        "pictures/masking-causal.svg",
        "pictures/gone.svg",
    }
    write(tmp_path, files)
    assert list(stale(tmp_path, files)) == []


def cell(colour: str, where: str = "M0 0h1v1h-1z") -> str:
    return f'<g shape-rendering="crispEdges"><path fill="{colour}" d="{where}"/></g>'


def test_the_last_bits_of_another_machine_do_not_make_a_picture_stale() -> None:
    assert same_picture(cell("#0072b2"), cell("#0b78b5"))
    assert not same_picture(cell("#0072b2"), cell("#d55e00"))
    assert not same_picture(cell("#0072b2"), cell("#0072b2", "M1 0h1v1h-1z"))
    two = cell("#0072b2", "M0 0h1v1h-1zM1 0h1v1h-1z")
    assert same_picture(cell("#0072b2", "M0 0h2v1h-2z"), two)
    assert same_picture("<text>0.421</text>", "<text>0.42</text>")
    assert not same_picture("<text>0.42</text>", "<text>0.52</text>")


def test_pages_name_no_path_and_no_object_of_a_machine(files: Mapping[str, str]) -> None:
    for name, text in files.items():
        assert not re.search(r"(?<![\w.~/])/(root|home|Users|work|tmp)/", text), name
        assert " at 0x" not in text, name
