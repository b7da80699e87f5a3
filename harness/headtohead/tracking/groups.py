"""Names of the groups of runs that MLflow's charts draw as a bar or a curve with a band: a group per variant.

Runs have the colours of ``mlflow.runColor``, but MLflow colours a group by a hash of its name, which gives several
groups one colour. Trailing spaces, which pages do not show, select another hash.
"""

from __future__ import annotations

import re

from headtohead.storage.experiment import ExperimentRecord
from headtohead.storage.palette import Palette

GROUP_TAG = "h2h.group"
SIMILAR = 4000
"""Squared distance of red, green and blue, below which two colours are similar."""
# MLflow's colours in the order of the hash.
COLOURS = re.findall(
    r"#\w+",
    "#a6630c #c83243 #b45091 #8a63bf #434a93 #137dae #04867d #308613 #facb66 #1f272d #445461 #5f7281 #8396a5 #93320b "
    "#be501e #de7921 #f2be88 #115026 #277c43 #3ba65e #8ddda8 #9e102c #c82d4c #e65b77 #f792a6 #0e538b #2272b4 #4299e0 "
    "#8acaff",
)


def group_names(record: ExperimentRecord) -> dict[str, str]:
    """Return the title of each variant by slug, with trailing spaces for MLflow's colour nearest to the report's.

    Colours are repeated, or similar, only if there are too many variants.
    """
    palette, names, used = Palette(record), dict[str, str](), list[str]()
    for slug, variant in record.by_slug.items():
        wanted = palette.colour(slug)
        unlike = [own for own in COLOURS if all(_distance(own, other) >= SIMILAR for other in used)]
        unused = unlike or [own for own in COLOURS if own not in used] or COLOURS
        used.append(colour := min(unused, key=lambda own: _distance(own, wanted)))
        names[slug] = variant.title
        while COLOURS[_hash(group_id("tag", GROUP_TAG, names[slug])) % len(COLOURS)] != colour:
            names[slug] += " "
    return names


def group_id(mode: str, key: str, value: str) -> str:
    """Return MLflow's identifier of the group of the runs with a value of a ``param`` or ``tag``."""
    return f"{mode}.{key}.{value}"


def _distance(first: str, second: str) -> int:
    return sum((one - other) ** 2 for one, other in zip(*(bytes.fromhex(c[1:]) for c in (first, second)), strict=True))


def _hash(name: str) -> int:
    """Return Fletcher's checksum of the UTF-16 code units."""
    total = checksum = 0
    for unit in memoryview(name.encode("utf-16-le")).cast("H"):
        total = (total + unit) % 255
        checksum = (checksum + total) % 255
    return total | checksum << 8
