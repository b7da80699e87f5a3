"""Declared contrasts of an experiment file: the variants that they select, expected results, and all their errors."""

import re
from pathlib import Path

import pytest

from headtohead.config.loading import load_file
from headtohead.planning.design import expand
from made import refused

ROOT = Path(__file__).parents[2]
PUBLISHED = sorted((ROOT / "experiments" / "published").glob("*.yaml"))

DESIGN = """
design:
  - product:
      positional: [sinusoidal, rotary, {name: learned, std: 0.1}, {name: learned, std: 1.0}]
      model.heads: [2, 4]
"""
CONTRAST = """
contrasts:
  - variant: {positional: rotary}
    expect: {direction: higher, source: A. Author 2018}
"""


def declared(text: str = "") -> str:
    return DESIGN + CONTRAST + text


def changed(old: str, new: str) -> str:
    text = declared()
    assert old in text
    return text.replace(old, new)


def test_a_contrast_selects_variants_by_axis_values_with_the_baseline_for_other_axes(design):
    (found,) = design(
        declared("    against: {positional: {name: learned, std: 1.0}, model.heads: 4}\n")
    ).declared
    assert (found.variant, found.against) == ("rotary-heads-2", "learned-std-1-heads-4")
    assert found.expect.direction == "higher"


def test_the_default_of_against_is_the_baseline(design):
    found = design(declared())
    assert found.declared[0].against == found.baseline


WRONG = [
    (
        changed("positional: rotary", "positional: rotari"),
        "contrasts[0].variant.positional",
        "did you mean 'rotary'?",
    ),
    (
        changed("{positional: rotary}", "{positional: alibi}"),
        "contrasts[0].variant",
        "expected one of: sinusoidal",
    ),
    (
        changed("{positional: rotary}", "{positional: learned}"),
        "contrasts[0].variant",
        "2 variants have",
    ),
    (
        changed("{positional: rotary}", "{position: rotary}"),
        "contrasts[0].variant.position",
        "unknown axis",
    ),
    (
        changed("{positional: rotary}", "{size: 2}"),
        "contrasts[0].variant.size",
        "name fields that it sets",
    ),
    (
        changed("{positional: rotary}", "{positional: sinusoidal}"),
        "contrasts[0]",
        "the same variant",
    ),
    (
        changed("direction: higher", "direction: more"),
        "contrasts[0].expect.direction",
        "'higher', 'lower' or 'equal'",
    ),
    (changed("direction: higher", "direction: equal"), "contrasts[0].expect", "requires by"),
    (
        changed("direction: higher", "direction: higher, by: -1"),
        "contrasts[0].expect.by",
        "equal to 0",
    ),
    (changed(", source: A. Author 2018", ""), "contrasts[0].expect", "field 'source' is missing"),
    (declared("    metric: test/blue\n"), "contrasts[0].metric", "did you mean 'test/bleu'?"),
    (
        declared("    lengths: [3, 8]\n"),
        "contrasts[0].lengths",
        "start at 1, 6, 9, 12, 15, 21 and end at 5, 8, 11, 14, 20, 30; got 3 to 8",
    ),
    (
        declared("    against_metric: test/loss_unpadded\n    against_lengths: [1, 8]\n"),
        "contrasts[0].against_lengths",
        "test/loss_unpadded has no score by source length; use test/loss",
    ),
    (
        declared("exclude:\n  - {when: {positional: rotary}, reason: it is late}\n"),
        "contrasts[0].variant",
        "rotary is excluded: it is late",
    ),
    (
        declared("  - variant: {positional: rotary}\n"),
        "contrasts[1]",
        "the same two variants as contrasts[0]",
    ),
]


@pytest.mark.parametrize(("text", "field", "problem"), WRONG)
def test_a_wrong_contrast_is_refused_with_file_line_and_field(text, field, problem, design):
    assert re.match(
        rf"x\.yaml:\d+: {re.escape(field)}: .*{re.escape(problem)}.*$", refused(design, text)
    )


def test_the_same_variants_are_compared_in_several_metrics_and_lengths(design):
    more = "".join(
        f"  - variant: {{positional: rotary}}\n    {field}\n"
        for field in ("metric: test/bleu", "lengths: [1, 8]")
    )
    assert len(design(declared(more)).declared) == 3


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_every_published_comparison_tests_an_expected_result_with_a_source(path, registry):
    loaded = load_file(path)
    found = expand(loaded)
    if len(found.variants) > 1:
        assert re.search(r"(19|20)\d\d", loaded.file.description)
        assert any(contrast.expect for contrast in found.declared)


def test_published_experiments_on_the_same_sentences_share_their_base():
    """Runs of equal configurations are trained once, so the files on Tatoeba differ in nothing else."""
    files = (load_file(path).file for path in PUBLISHED)
    bases = [str(file.base) for file in files if file.base["data"]["dataset"] == "tatoeba"]
    assert len(bases) >= 6
    assert len(set(bases)) == 1
