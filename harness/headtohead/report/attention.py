"""The sections on attention: the same head of every variant side by side, and the head ablation."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from headtohead.figures.heat_map import HeatMap, heat_map_figure
from headtohead.report.content import Report
from headtohead.report.gallery import Gallery, payload
from headtohead.report.section import Section, table
from headtohead.schema.roles import ROLES
from headtohead.storage.attention_maps import entropy, mean_distance


def attention_section(report: Report) -> Section | None:
    """Return the maps with entropy and distance of every head, or None without recorded maps."""
    gallery = report.gallery
    if gallery is None:
        return None
    text = (
        "The same sentence, layer and head of every variant; layers and heads are numbered from 0. Rows are queries, "
        "columns keys; full colour is a weight of 1. Heads with the same index can have different functions in "
        "different models. Entropy is in nats, distance in tokens."
    )
    runs = report.analysis.frames.runs
    if "attention/fused_difference" in runs and not math.isnan(
        largest := float(runs["attention/fused_difference"].max())
    ):
        text += (
            f" The maps come from the explicit path; its output differs from the fast path by at most {largest:.1e}."
        )
    if gallery.num_omitted:
        text += f" The maps of {gallery.num_omitted} more variants are in the run directories."
    if gallery.signed:
        text += f" Negative weights of {gallery.signed} have the other colour, full at −1."
    rows = []
    for variant in gallery.variants:
        maps = variant.maps[gallery.probe].weights
        for role in (role for role in ROLES if role in maps):
            pairs = zip(entropy(maps[role]).flat, mean_distance(maps[role]).flat, strict=True)
            heads = ", ".join(f"{own:.2f} / {distance:.2f}" for own, distance in pairs)
            rows.append({"variant": variant.title, "role": role, "entropy / distance by layer and head": heads})
    source = gallery.variants[0].maps[gallery.probe].probe["source"]
    return Section(
        "Attention maps",
        " ".join([text, *gallery.notes]),
        figure="attention",
        caption=f"Sentence “{source}”, {gallery.role}, layer {gallery.layer}, head {gallery.head}, one seed of each.",
        maps=payload(gallery),
        parts=[Section("Entropy and distance of every head, first sentence", frame=table(rows))],
    )


def heads_section(report: Report) -> Section:
    """Return the figure of the head ablation, which is drawn if a run of the baseline has one."""
    return Section(
        "Heads",
        "The change of the baseline's test loss when a head is masked, and when all other heads of its layer are, for "
        "every head of every seed with a head ablation. Layers and heads are numbered from 0.",
        figure="heads",
    )


def attention_figure(gallery: Gallery) -> Figure:
    """Draw the selected head of every variant side by side."""
    maps = []
    for variant in gallery.variants:
        weights = variant.weights(gallery.probe, gallery.role)
        if weights is None or gallery.layer >= len(weights) or gallery.head >= weights.shape[1]:
            continue
        queries, keys = variant.maps[gallery.probe].tokens(gallery.role)
        title = f"{variant.title} (seed {variant.seed})"
        maps.append(HeatMap(weights[gallery.layer, gallery.head], queries, keys, title))
    return heat_map_figure(maps)
