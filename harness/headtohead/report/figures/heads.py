"""Figure of the head ablation: the increase in loss per head and seed, by role and layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.schema.roles import ROLE_NAMES
from headtohead.storage.metrics import show
from headtohead.storage.results import HeadRecord
from headtohead.storage.run_directory import RunDirectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = {
    "without-one": ("without this head", "o", style.PALETTE[0], -0.13),
    "only-one": ("with only this head", "D", style.PALETTE[1], 0.13),
}
"""Label, marker, colour and offset of the points of each kind of ablation."""


def heads_figure(analysis: Analysis) -> Figure | None:
    """Draw the head ablation of the baseline, or return None if no run of it has one.

    A row per layer of a role, a point per head and seed for each kind of ablation.

    Raises:
        HeadToHeadError: If a ``heads.json`` cannot be read or has changed since it was written.
        KeyError: If an ablation has no loss.
    """
    ablated = _ablated_heads(analysis)
    if not ablated:
        return None
    from matplotlib.figure import Figure

    order = list(ROLE_NAMES)
    layers = {(head["role"], head["layer"]) for _, head in ablated}
    rows = sorted(layers, key=lambda row: (order.index(row[0]), row[1]))
    labels = [f"{ROLE_NAMES[role]}, layer {layer}" for role, layer in rows]
    with style.drawing():
        height = 1.1 + 0.34 * len(rows)
        figure = Figure(figsize=(style.WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
        style.bare_left(axes)
        axes.axvline(0, color=style.MUTED, linewidth=0.9, zorder=1)
        for kind in KINDS:
            for seed, head in ablated:
                row = rows.index((head["role"], head["layer"]))
                _draw_head(figure, axes, kind, seed, head, row)
        axes.set_yticks(range(len(rows)), labels)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlabel("increase in loss, nats per token")
        points, point_labels = axes.get_legend_handles_labels()
        handles = dict(zip(point_labels, points, strict=True))  # one for each label
        figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=2)
    return figure


def _ablated_heads(analysis: Analysis) -> list[tuple[int, HeadRecord]]:
    """Return each ablated head of the baseline's runs with the seed of its run; empty without a head ablation.

    Raises:
        HeadToHeadError: If a ``heads.json`` cannot be read or has changed since it was written.
    """
    frames = analysis.frames
    ablated: list[tuple[int, HeadRecord]] = []
    for run, seed in frames.rows(frames.baseline)["seed"].items():
        record = RunDirectory(frames.folders[str(run)]).heads
        if record:
            for head in record["heads"]:
                ablated.append((int(seed), head))
    return ablated


def _draw_head(
    figure: Figure, axes: Axes, kind: str, seed: int, head: HeadRecord, row: int
) -> None:
    """Draw the increase in loss of an ablated head as a point, with a tooltip that the SVG of ``figure`` has.

    Args:
        figure: The figure.
        axes: Where to draw.
        kind: A key of `KINDS`.
        seed: The seed of the run.
        head: The ablated head.
        row: Vertical position of the row.

    Raises:
        KeyError: If the ablation has no loss, or `KINDS` lacks ``kind``.
    """
    label, marker, colour, offset = KINDS[kind]
    loss = head[kind]["loss"]  # type: ignore[literal-required]
    (point,) = axes.plot(
        loss, row + offset, marker, color=colour, markersize=4.2, alpha=0.65, label=label
    )
    point.set(markeredgewidth=0, zorder=3)
    shown_loss = show(loss, "test/loss", signed=True)
    tip = f"{label}, seed {seed}, head {head['head']}: {shown_loss}"
    if "entropy" in head:
        tip += f", entropy {head['entropy']:.2f}"
    style.tip(figure, point, tip)
