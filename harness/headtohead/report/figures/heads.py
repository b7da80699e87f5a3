"""Figure of the head ablation: the increase in loss per head and seed, by role and layer."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.storage.metrics import ROLES, show
from headtohead.storage.results import HeadRecord
from headtohead.storage.run_directory import RunDirectory


def heads_figure(analysis: Analysis) -> Figure | None:
    """Draw the head ablation of the baseline, or return None if no run has one."""
    ablated = [(seed, head) for seed, heads in _head_ablations(analysis) for head in heads]
    rows = sorted(
        {(head["role"], head["layer"]) for _, head in ablated}, key=lambda row: (list(ROLES).index(row[0]), row[1])
    )
    if not rows:
        return None
    with style.drawing():
        figure = Figure(figsize=(style.WIDTH, 1.1 + 0.34 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        style.bare_left(axes)
        axes.axvline(0, color=style.MUTED, linewidth=0.9, zorder=1)
        for row, (role, layer) in enumerate(rows):
            _row(figure, axes, row, [(seed, h) for seed, h in ablated if (h["role"], h["layer"]) == (role, layer)])
        names = [f"{ROLES[role]}, layer {layer}" for role, layer in rows]
        axes.set_yticks(range(len(rows)), names)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlabel("increase in loss, nats per token")
        handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=2)
    return figure


def _head_ablations(analysis: Analysis) -> list[tuple[int, list[HeadRecord]]]:
    """Return the seed and the ablated heads of each of the baseline's runs with an ablation."""
    frames, ablations = analysis.frames, []
    for run, seed in frames.rows(frames.baseline)["seed"].items():
        record = RunDirectory(frames.path(str(run))).heads
        if record is not None:
            ablations.append((int(seed), record["heads"]))
    return ablations


def _row(figure: Figure, axes: Axes, row: int, heads: list[tuple[int, HeadRecord]]) -> None:
    kinds = (
        ("without-one", "without this head", "o", style.PALETTE[0], -0.13),
        ("only-one", "with only this head", "D", style.PALETTE[1], 0.13),
    )
    for kind, label, marker, colour, offset in kinds:
        for seed, head in heads:
            loss = head[kind]["loss"]  # type: ignore[literal-required]
            (point,) = axes.plot(
                loss,
                row + offset,
                marker,
                color=colour,
                markersize=4.2,
                alpha=0.65,
                zorder=3,
                markeredgewidth=0,
                label=label,
            )
            entropy = f", entropy {head['entropy']:.2f}" if "entropy" in head else ""
            result = f"seed {seed}, head {head['head']}: {show(loss, 'test/loss', signed=True)}"
            style.tip(figure, point, f"{label}, {result}{entropy}")
