"""Figure of the head ablation: the increase in loss per head and seed, by role and layer."""

from __future__ import annotations

from matplotlib.figure import Figure

from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.schema.roles import ROLE_NAMES
from headtohead.storage.metrics import show
from headtohead.storage.run_directory import RunDirectory

KINDS = {
    "without-one": ("without this head", "o", style.PALETTE[0], -0.13),
    "only-one": ("with only this head", "D", style.PALETTE[1], 0.13),
}
"""Label, marker, colour and offset of the points of each kind of ablation."""


def heads_figure(analysis: Analysis) -> Figure | None:
    """Draw the head ablation of the baseline, or return None if no run has one."""
    frames = analysis.frames
    seeds = frames.rows(frames.baseline)["seed"]
    records = {
        int(seed): RunDirectory(frames.folders[str(run)]).heads for run, seed in seeds.items()
    }
    ablated = [
        (seed, head) for seed, record in records.items() if record for head in record["heads"]
    ]
    order = {role: number for number, role in enumerate(ROLE_NAMES)}
    rows = sorted(
        {(head["role"], head["layer"]) for _, head in ablated},
        key=lambda row: (order[row[0]], row[1]),
    )
    if not rows:
        return None
    with style.drawing():
        figure = Figure(figsize=(style.WIDTH, 1.1 + 0.34 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        style.bare_left(axes)
        axes.axvline(0, color=style.MUTED, linewidth=0.9, zorder=1)
        for kind, (label, marker, colour, offset) in KINDS.items():
            for seed, head in ablated:
                loss = head[kind]["loss"]  # type: ignore[literal-required]
                row = rows.index((head["role"], head["layer"])) + offset
                (point,) = axes.plot(
                    loss, row, marker, color=colour, markersize=4.2, alpha=0.65, label=label
                )
                point.set(markeredgewidth=0, zorder=3)
                entropy = f", entropy {head['entropy']:.2f}" if "entropy" in head else ""
                result = f"seed {seed}, head {head['head']}: {show(loss, 'test/loss', signed=True)}"
                style.tip(figure, point, f"{label}, {result}{entropy}")
        axes.set_yticks(
            range(len(rows)), [f"{ROLE_NAMES[role]}, layer {layer}" for role, layer in rows]
        )
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlabel("increase in loss, nats per token")
        handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=2)
    return figure
