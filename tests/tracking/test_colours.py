"""Colours of variants in MLflow: those that its own function selects, and never the same for two variants."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import mlflow
import numpy as np

from headtohead.figures.colours import PALETTE
from headtohead.tracking.study import TrackedStudy
from headtohead_mlflow.colours import (
    INVISIBLE,
    MAX_SUFFIX,
    MLFLOW_PALETTE,
    distinct,
    group_colour,
)
from headtohead_mlflow.groups import Groups

POSITIONAL = ["sinusoidal", "rotary", "none", "alibi", "learned", "t5", "shaw", "cape"]
SCRIPTS = Path(mlflow.__file__).parent / "server/js/build/static/js"
HASH = (
    r"=>\{let (\w)=0,(\w)=0;for\(let (\w)=0;\3<(\w)\.length;\3\+\+\)"
    r"\1=\(\1\+\4\.charCodeAt\(\3\)\)%255,\2=\(\2\+\1\)%255;return (\w)\.T\[\(\1\|\2<<8\)%\5\.T\.length\]\}"
)


def _mlflow_colour(identity: str) -> str:
    """MLflow's function, line by line, for text without characters of two code units."""
    a, b = 0, 0
    for character in identity:
        a = (a + ord(character)) % 255
        b = (b + a) % 255
    return MLFLOW_PALETTE[(a | (b << 8)) % len(MLFLOW_PALETTE)]


def test_the_installed_mlflow_has_this_palette_and_this_function() -> None:
    script = max(SCRIPTS.glob("main.*.js"), key=lambda path: path.stat().st_size)
    text = script.read_text(encoding="utf-8")
    assert "[" + ",".join(f'"{colour}"' for colour in MLFLOW_PALETTE) + "]" in text
    assert re.search(HASH, text)


def test_groups_have_the_colours_of_mlflows_function() -> None:
    for identity in ("tag.h2h.variant.rotary", "tag.h2h.variant.ALiBi · naïve\u2060\u200b", ""):
        assert group_colour(identity) == _mlflow_colour(identity)
    assert group_colour("a\U0001f600") == _mlflow_colour("a\ud83d\ude00")


def test_every_name_has_a_suffix_for_every_colour() -> None:
    """The function depends on a name through two sums below 255 only, so that all names are tested."""
    first, second = np.divmod(np.arange(255 * 255), 255)
    reached = np.zeros((len(first), len(MLFLOW_PALETTE)), bool)
    for length in range(MAX_SUFFIX + 1):
        for suffix in itertools.product(INVISIBLE, repeat=length):
            a, b = first, second
            for character in suffix:
                a = (a + ord(character)) % 255
                b = (b + a) % 255
            reached[np.arange(len(first)), (a | b << 8) % len(MLFLOW_PALETTE)] = True
    assert reached.all()


def test_no_two_variants_or_values_of_an_axis_share_a_colour(
    make_experiment: Callable[..., Path],
) -> None:
    heads = ["split-heads", "independent-heads"]
    folder = make_experiment(axes={"positional": POSITIONAL, "attention": heads})
    record = TrackedStudy.read(folder).record
    groups = Groups.of(record)
    colours = {}
    for slug, name in groups.variants.items():
        shown = name.rstrip(INVISIBLE).removesuffix(" (baseline)")
        assert shown == record.by_slug[slug].title
        colours[slug] = _mlflow_colour(f"tag.h2h.variant.{name}")
    assert len(set(colours.values())) == len(record.variants) == 16
    assert colours == groups.colours
    for axis, names in groups.values.items():
        chosen = {_mlflow_colour(f"tag.h2h.axis.{axis}.{name}") for name in names.values()}
        assert len(chosen) == len(names)


def test_colours_are_close_to_those_of_the_report_and_repeat_only_after_all_are_used() -> None:
    blue, orange, green = distinct(PALETTE[:3])
    assert blue in {"#137dae", "#2272b4"}
    assert orange in {"#de7921", "#be501e"}
    assert green in {"#04867d", "#3ba65e"}
    assert sorted(distinct([None] * 29)) == sorted(MLFLOW_PALETTE)
    assert len(distinct([PALETTE[0]] * 60)) == 60
