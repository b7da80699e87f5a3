"""A registered entry of a plugin file appears in the catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalogue.__main__ import built_in_and, main
from catalogue.content import CatalogueEntry, catalogue_entries
from catalogue.pages import catalogue_files
from catalogue.pictures import HeatMaps
from headtohead.plugins.registry import Registered, load_registry
from headtohead.plugins.template import TEMPLATE_FAMILIES, write_package
from made import case_table

ODD = '''
"""An entry without formula, cost formulas and class docstring."""

from headtohead.plugin import Attention, Geometry, hookimpl


class Odd(Attention):
    weights = "signed"

    @classmethod
    def geometry(cls, options, model):
        return Geometry(model.heads, model.heads, 4, 4, 0.5)

    def build(self):
        heads = self.context.geometry.heads
        self.numbers = self.parameter(2**heads)

    @classmethod
    def parameter_count(cls, options, context):
        return 2**context.geometry.heads

    def normalise(self, scores, mask):
        return scores.clamp(-1, 1) if mask is None else scores.clamp(-1, 1).masked_fill(~mask, 0)


@hookimpl
def register_attentions():
    return {"odd": Odd}
'''


def entries_with(path: Path, family: str, name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, CatalogueEntry]:
    registry = load_registry([path])
    monkeypatch.setattr("headtohead.plugins.registry._current", registry)
    plain = [("positional", "alibi"), ("attention", "linear"), ("masking", "causal")]
    chosen = [registry.find(*names) for names in [*plain, (family, name)]]
    return {entry.name: entry for entry in catalogue_entries(registry, chosen)}


@case_table("family", sorted(TEMPLATE_FAMILIES, key=lambda name: name != "positional"), default=1)
def test_a_new_entry_has_a_section_and_pictures(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_package(family, "my-idea", tmp_path / "mine", load_registry())[0]
    found = entries_with(path, family, "my-idea", monkeypatch)
    mine = found["my-idea"]
    files = catalogue_files(list(found.values()))
    assert "## my-idea" in files[f"{family}.md"]
    assert f"({family}.md#my-idea)" in files["index.md"]
    facts = dict(mine.facts)
    if family == "positional":
        assert facts["parameters, one role, all its layers"] == "Lh"
        assert any("`linear`" in line for line in mine.incompatible)
        assert any("`my-idea`" in line for line in found["linear"].incompatible)
    elif family == "attention":
        assert facts["parameters, one attention"] == "4d² + h"
    elif family == "masking":
        assert facts["roles"] == "encoder, decoder"
    else:
        assert {pair[0] for pair in mine.pairs} == {"grouped", "length", "row"}
    assert mine.pictures or mine.pairs


def test_an_entry_without_formulas_is_shown_with_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "odd.py"
    path.write_text(ODD, "utf-8")
    odd = entries_with(path, "attention", "odd", monkeypatch)["odd"]
    facts = dict(odd.facts)
    assert facts["parameters, one attention"] == "2,064 at d = 32, h = 4, L = 2, n = 16"
    assert facts["biases"] == "+ 80 at d = 32, h = 4, L = 2, n = 16"
    assert "signed: weights may be negative" in odd.properties
    maps = [picture for picture in odd.pictures.values() if isinstance(picture, HeatMaps)]
    assert any(picture.colour_range is not None and picture.colour_range.low < 0 for picture in maps)


def test_the_entries_of_a_plugin_folder_are_included(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd.py").write_text(ODD, "utf-8")
    monkeypatch.setattr("headtohead.plugins.registry._current", load_registry())
    chosen: list[Registered] = []
    monkeypatch.setattr("catalogue.__main__.catalogue_entries", lambda registry, entries: chosen.extend(entries))
    built_in_and([tmp_path])
    assert ("attention", "odd") in [(entry.family, entry.name) for entry in chosen]


def test_a_missing_plugin_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "nowhere.py"
    assert main([str(tmp_path / "out"), "--plugin", str(missing)]) == 2
    assert capsys.readouterr().err == (f"catalogue: plugin file '{missing}' does not exist\n")
    assert not (tmp_path / "out").exists()
