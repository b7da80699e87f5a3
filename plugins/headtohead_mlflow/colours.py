"""Colours of groups of runs in MLflow's charts.

MLflow draws a group in the colour of its palette that a hash of the group's identity selects, and cannot store another.
Invisible characters after the name of a group change this hash until the colour is the wanted one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

# RUNS_COLOR_PALETTE of MLflow's user interface.
MLFLOW_PALETTE = (
    *("#a6630c", "#c83243", "#b45091", "#8a63bf", "#434a93", "#137dae", "#04867d", "#308613"),
    *("#facb66", "#1f272d", "#445461", "#5f7281", "#8396a5", "#93320b", "#be501e", "#de7921"),
    *("#f2be88", "#115026", "#277c43", "#3ba65e", "#8ddda8", "#9e102c", "#c82d4c", "#e65b77"),
    *("#f792a6", "#0e538b", "#2272b4", "#4299e0", "#8acaff"),
)
INVISIBLE = "\u200b\u200c\u2060"
"""Characters without a width, which no page or search shows."""

MAX_SUFFIX = 5
"""Length of the longest suffix. For every name and colour there is one: the hash has 255 x 255 states, all tested."""

MIN_DISTANCE = 0.018
"""`_distance` up to which two colours are hard to tell apart."""


def group_identity(tag: str, value: str) -> str:
    """Return MLflow's identity of the group of runs whose tag has this value."""
    return f"tag.{tag}.{value}"


def group_colour(identity: str) -> str:
    """Return the colour of a group; the function ``getStableColorForRun`` of MLflow's user interface."""
    units = identity.encode("utf-16-le")
    first = second = 0
    for low, high in zip(units[::2], units[1::2], strict=True):
        first = (first + low + 256 * high) % 255
        second = (second + first) % 255
    return MLFLOW_PALETTE[(first | second << 8) % len(MLFLOW_PALETTE)]


def coloured(tag: str, name: str, colour: str) -> str:
    """Return a name with an invisible suffix, so that the group of runs with this tag has a colour of the palette."""
    for length in range(MAX_SUFFIX + 1):
        for characters in itertools.product(INVISIBLE, repeat=length):
            shown = name + "".join(characters)
            if group_colour(group_identity(tag, shown)) == colour:
                return shown
    raise AssertionError(f"no suffix for '{name}' and {colour}")


def distinct(wanted: Sequence[str | None]) -> list[str]:
    """Return a colour of `MLFLOW_PALETTE` for each wanted one: the closest that no earlier colour of the list has.

    Colours that resemble an earlier one are taken last. Above 29, colours repeat. None: any colour.
    """
    chosen: list[str] = []
    unused: list[str] = []
    for colour in wanted:
        if not unused:
            unused = [*MLFLOW_PALETTE]
        different = []
        for candidate in unused:
            if all(_distance(candidate, earlier) > MIN_DISTANCE for earlier in chosen):
                different.append(candidate)
        chosen.append(_closest(different or unused, colour))
        unused.remove(chosen[-1])
    return chosen


def _closest(colours: Sequence[str], wanted: str | None) -> str:
    """Return the colour with the smallest distance to the wanted one, the first of equals; None: the first."""
    if wanted is None:
        return colours[0]
    return min(colours, key=lambda colour: _distance(colour, wanted))


def _distance(colour: str, other: str) -> float:
    """Return the squared distance of two colours, in which the hue counts more than the lightness."""
    lightness, *hue = _lightness_and_hue(colour)
    other_lightness, *other_hue = _lightness_and_hue(other)
    return (lightness - other_lightness) ** 2 + 3 * math.dist(hue, other_hue) ** 2


def _lightness_and_hue(colour: str) -> tuple[float, float, float]:
    """Return the lightness of a colour, then the differences of blue and red to it; all levels are from 0 to 1."""
    red, green, blue = (level / 255 for level in bytes.fromhex(colour.removeprefix("#")))
    lightness = 0.299 * red + 0.587 * green + 0.114 * blue
    return lightness, blue - lightness, red - lightness
