"""The style of figures: a colour-blind palette, and reproducible SVG and PNG files.

matplotlib is imported where a figure is drawn, so that pages without new figures do not wait for it.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from headtohead.escaping import shortened, visible
from headtohead.figures.colours import GRID as GRID
from headtohead.figures.colours import INK as INK
from headtohead.figures.colours import MUTED as MUTED
from headtohead.figures.colours import PALETTE as PALETTE
from headtohead.figures.colours import PAPER as PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
WIDTH = 4.9
"""Width of a figure in inches: at its drawn size it fits a phone, where its smallest text has 9 pixels."""

CHARACTER_WIDTH = 0.073
"""Mean width of a character of 9 points in inches, that of DejaVu Sans; fonts of browsers are narrower."""
LEGEND_LINE_WIDTH = 0.55
"""Width of the line of a legend with its distances, in inches."""
LEGEND_ROW_HEIGHT = 0.19
"""Height of a row of a legend in inches."""

_NUMBERED = re.compile(
    r'id="(?:figure|axes|patch|line2d|text|xtick|ytick|matplotlib\.axis|legend|PathCollection|'
    r'FillBetweenPolyCollection|LineCollection)_\d+"'
)
"""Numbered ids by matplotlib without a reference; they would be ambiguous with several figures on a page."""
_GROUP_OF_ONE = re.compile(r"<g ?>\s*(<(\w+)\b[^<>]*(?:/>|>[^<]*</\2>))\s*</g>")

_RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "path.simplify": True,
}


@contextmanager
def drawing() -> Iterator[None]:
    """Apply the project's style while a figure is built."""
    import matplotlib

    with matplotlib.rc_context(_RC):
        yield


def to_svg(figure: Figure, salt: str, *, title: str, caption: str = "") -> str:
    """Return the figure as an SVG element with a title, and its caption as description if there is one.

    ``salt`` makes the ids of several figures differ.
    """
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    with matplotlib.rc_context({**_RC, "svg.hashsalt": salt}), warnings.catch_warnings():
        # Browsers draw the text with fonts that have more glyphs than matplotlib's font.
        warnings.filterwarnings("ignore", r"Glyph .* missing from font")
        buffer = io.StringIO()
        FigureCanvasSVG(figure)
        layout = figure.get_layout_engine()
        if layout is not None:
            layout.execute(figure)
            # Otherwise savefig draws the figure once more, for its layout.
            figure.set_layout_engine(None)
        figure.savefig(buffer, format="svg", metadata=FORMATS["svg"])
    text = _without_ballast(buffer.getvalue())
    text = text.replace("<svg ", f'<svg font-family="{FONTS}" ', 1)
    text = _described(text, salt, title, caption)
    tips: Mapping[str, str] = getattr(figure, "tips", {})
    for gid, tooltip in tips.items():
        text = text.replace(f'<g id="{gid}">', f"<g><title>{escape(tooltip)}</title>", 1)
    return visible(text)  # XML allows no control characters


def _without_ballast(svg: str) -> str:
    """Return the SVG element without what draws nothing, with hundredths of a point, and without fonts."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = _NUMBERED.sub("", svg)
    svg = re.sub(r' transform="rotate\(-0 [^"]*"|\s*<g />', "", svg)
    svg = re.sub(r'(\.\d\d)\d{4}(?=[ ",)\n])', r"\1", svg)
    svg = re.sub(r"\n +", "\n", svg)
    for _ in range(2):  # a group can be in a group
        svg = _GROUP_OF_ONE.sub(r"\1", svg)
    return re.sub(r" font-family: [^;\"]+;", "", svg)


def _described(svg: str, name: str, title: str, caption: str) -> str:
    """Return an SVG element with a title and a description for screen readers; ``name`` makes their ids unique."""
    name = re.sub(r"\W+", "-", name)
    start, end, content = svg.partition(">")
    ids = [f"{name}-title"]
    texts = f'<title id="{name}-title">{escape(title)}</title>'
    if caption:
        ids.append(f"{name}-caption")
        texts += f'<desc id="{name}-caption">{escape(caption)}</desc>'
    return f'{start} role="img" aria-labelledby="{" ".join(ids)}"{end}{texts}{content}'


FORMATS = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Producer": None},
    "png": {"Software": None},
}
"""The formats of figures, with the metadata that would differ between equal figures."""


def to_bytes(figure: Figure, form: str, salt: str) -> bytes:
    """Return the figure as a file of one of the ``FORMATS``, PDF and PNG on white; ``salt`` as in `to_svg`."""
    if form == "svg":
        return to_svg(figure, salt, title=salt).encode()
    import matplotlib

    with matplotlib.rc_context({**_RC, "pdf.fonttype": 42}):  # text stays text
        buffer = io.BytesIO()
        figure.savefig(buffer, format=form, dpi=144, facecolor=PAPER, metadata=FORMATS[form])
    return buffer.getvalue()


def tip(figure: Figure, artist: Any, text: str) -> None:
    """Give an artist a tooltip in the SVG that `to_svg` returns."""
    tips: dict[str, str] = figure.__dict__.setdefault("tips", {})
    gid = f"tip-{len(tips)}"
    tips[gid] = text
    artist.set_gid(gid)


def bare_left(axes: Axes) -> None:
    """Style axes for a chart with a labelled row per variant: no frame, vertical grid lines only."""
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def legend_names(
    names: Sequence[str], width: float = WIDTH, most: int = 3
) -> tuple[list[str], int]:
    """Return the names of a legend of ``width`` inches, and its number of columns, at most ``most``.

    There are as many columns as the longest name allows. Names that do not fit into one column are shortened. A legend
    that is wider than its axes would leave no room for them.
    """
    longest = max(map(len, names))
    columns = most
    while columns > 1 and longest > _room(width / columns):
        columns -= 1
    return shortened_names(names, _room(width / columns)), columns


def _room(column_width: float) -> int:
    """Return how many characters of 9 points fit into a column of a legend, beside its line."""
    return int((column_width - LEGEND_LINE_WIDTH) / CHARACTER_WIDTH)


def shortened_names(names: Sequence[str], width: int = 58) -> list[str]:
    """Return names of at most ``width`` characters, shortened in the middle."""
    return [shortened(name, width) for name in names]
