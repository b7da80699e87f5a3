"""What masking heads costs: every head of every seed a point, by role and layer."""

from __future__ import annotations

import json
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.storage.metrics import show

ROLES = {"encoder": "encoder", "decoder": "decoder", "cross": "cross-attention"}


def heads_figure(analysis: Analysis) -> Figure | None:
    """Draw the baseline's heads, as ``h2h heads`` has measured them; None before that."""
    found = [(seed, head) for seed, heads in _measured(analysis) for head in heads]
    rows = sorted(
        {(one["role"], one["layer"]) for _, one in found}, key=lambda row: (list(ROLES).index(row[0]), row[1])
    )
    if not rows:
        return None
    with style.drawing():
        figure = Figure(figsize=(style.WIDTH, 1.1 + 0.34 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        style.bare_left(axes)
        axes.axvline(0, color=style.MUTED, linewidth=0.9, zorder=1)
        for row, (role, layer) in enumerate(rows):
            of_row = [(seed, one) for seed, one in found if (one["role"], one["layer"]) == (role, layer)]
            _row(figure, axes, row, of_row)
        names = [f"{ROLES[role]}, layer {layer}" for role, layer in rows]
        axes.set_yticks(range(len(rows)), names)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlabel("loss added, nats per token")
        marks = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        axes.legend(marks.values(), marks.keys(), loc="upper right", frameon=False)
    return figure


def _measured(analysis: Analysis) -> list[tuple[int, list[dict[str, Any]]]]:
    """Return the heads of each of the baseline's runs that has been measured, by seed."""
    frames, measured = analysis.frames, []
    for run, seed in frames.rows(frames.baseline)["seed"].items():
        path = frames.path(str(run)) / "heads.json"
        if path.is_file():
            measured.append((int(seed), json.loads(path.read_text("utf-8"))["heads"]))
    return measured


def _row(figure: Figure, axes: Axes, row: int, heads: list[tuple[int, dict[str, Any]]]) -> None:
    kinds = (
        ("without-one", "without this head", "o", style.PALETTE[0], -0.13),
        ("only-one", "with this head alone", "D", style.PALETTE[1], 0.13),
    )
    for kind, words, mark, colour, lift in kinds:
        for seed, head in heads:
            loss = head[kind]["loss"]
            (point,) = axes.plot(
                loss,
                row + lift,
                mark,
                color=colour,
                markersize=4.2,
                alpha=0.65,
                zorder=3,
                markeredgewidth=0,
                label=words,
            )
            entropy = f", entropy {head['entropy']:.2f}" if "entropy" in head else ""
            result = f"seed {seed}, head {head['head']}: {show(loss, 'test/loss', signed=True)}"
            style.tip(figure, point, f"{words}, {result}{entropy}")
