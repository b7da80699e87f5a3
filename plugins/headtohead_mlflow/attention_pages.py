"""Pages that compare the attention of all variants: one HTML file per probe sentence, with its images inside."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from contextlib import suppress
from html import escape

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from headtohead.errors import HeadToHeadError
from headtohead.escaping import visible
from headtohead.figures.sheet import grid, tiles
from headtohead.storage import states
from headtohead.storage.attention_maps import ProbeMaps, load_maps
from headtohead.storage.metrics import ROLES
from headtohead.tracking.study import TrackedRun, TrackedStudy

WIDTH = 1200
GAP = 20
MAX_OPEN = 12
"""Number of variants that are shown at first; the others are folded."""
MAX_BYTES = 3_500_000
COLOURS = 96

STYLE = """body{font:14px/1.5 system-ui,sans-serif;color:#1f2328;background:#fff;margin:16px;max-width:1240px}
h1{font-size:20px}h2{font-size:17px;margin:28px 0 4px;border-bottom:1px solid #e3e6ea}
h3{font-size:14px;margin:16px 0 4px}
.variants{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,var(--wide)),1fr));gap:0 28px}
.maps{display:flex;flex-wrap:wrap;gap:4px 20px}section,figure{margin:0;max-width:100%;overflow-x:auto}
figcaption,p{color:#667080;margin:0 0 4px}summary{cursor:pointer;margin-top:16px}img{display:block}"""


def attention_pages(study: TrackedStudy) -> Iterator[tuple[str, str]]:
    """Yield the file name and the HTML of each probe sentence, with the maps of each variant's first finished seed."""
    shown = dict[str, tuple[TrackedRun, list[ProbeMaps]]]()
    for run in study.runs():
        with suppress(HeadToHeadError):  # a damaged run has been reported when it was logged
            if run.variant.slug not in shown and run.begun() and run.state == states.DONE:
                maps = load_maps(run.path)
                shown |= {run.variant.slug: (run, maps)} if maps else {}
    baseline = shown.pop(study.record.baseline, None)
    ordered = [*([baseline] if baseline else []), *shown.values()]
    for index in range(min((len(maps) for _, maps in ordered), default=0)):
        probes = [(run, maps[index]) for run, maps in ordered]
        yield f"probe-{index}.html", _page(probes, baseline and baseline[1][index])


def _page(probes: list[tuple[TrackedRun, ProbeMaps]], baseline: ProbeMaps | None) -> str:
    text, size, omitted = [], 0, set[str]()
    for role in reversed(ROLES):
        variants, wide = [], 0
        for run, probe in probes:
            weights = _weights(probe).get(role) if size <= MAX_BYTES else None
            if weights is not None:
                width, figures = _figure("weights", weights, probe, role)
                other = _weights(baseline).get(role) if baseline and probe is not baseline else None
                if baseline and other is not None:
                    if other.shape == weights.shape and baseline.tokens(role) == probe.tokens(role):
                        figures += _figure("minus the baseline", weights - other, probe, role)[1]
                    else:
                        figures += "<p>No difference to the baseline: it has other heads, layers or tokens.</p>"
                size, wide = size + len(figures), max(wide, 2 * width + GAP)
                title = f"{run.variant.title} (seed {run.seed}{', the baseline' if probe is baseline else ''})"
                section = (
                    f'<section><h3>{escape(title)}</h3><div class="maps">{figures}</div></section>'
                )
                variants += [section] if size <= MAX_BYTES else []
            if size > MAX_BYTES:
                omitted.add(run.variant.title)
        opened, folded = "".join(variants[:MAX_OPEN]), "".join(variants[MAX_OPEN:])
        columns = f'<div class="variants" style="--wide:{wide}px">'
        summary = f"<details><summary>{len(variants) - MAX_OPEN} more variants</summary>"
        more = f"{summary}{columns}{folded}</div></details>" * bool(folded)
        text.append(f"<h2>{ROLES[role]}</h2>{columns}{opened}</div>{more}" * bool(variants))
    left_out = f"<p>Too large for this page: {escape(', '.join(sorted(omitted)))}.</p>" * bool(
        omitted
    )
    first = probes[0][1].probe
    source = escape(first["source"] or first["target"] or "")  # a text has no sources
    return visible(
        f'<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Attention: {source}</title><style>{STYLE}</style><h1>Attention of every variant: “{source}”</h1>"
        "<p>Rows are queries, columns are keys. Blue is a positive weight, orange a negative one; full colour is 1, "
        "or the largest weight if that is larger. Layers and heads are numbered from 0; heads with the same number can "
        "have different functions in two models.</p>"
        f"{left_out}{''.join(text)}"
    )


def _weights(probe: ProbeMaps) -> dict[str, NDArray[np.float32]]:
    """Return the maps by role; none of a damaged file, which is reported when its run is logged."""
    with suppress(HeadToHeadError):
        return probe.weights
    return {}


def _figure(
    caption: str, weights: NDArray[np.float32], probe: ProbeMaps, role: str
) -> tuple[int, str]:
    """Return the width and the element of a figure of ``[layer, head, query, key]``, a row per layer if it fits."""
    heads = tiles(weights, *probe.tokens(role))
    image, content = (
        grid(heads, max(1, min(weights.shape[1], WIDTH // heads[0].width))),
        io.BytesIO(),
    )
    image.quantize(COLOURS, Image.Quantize.FASTOCTREE).save(content, "png", optimize=True)
    data = base64.b64encode(content.getvalue()).decode("ascii")
    return image.width, (
        f'<figure><figcaption>{caption}</figcaption><img width="{image.width}" height="{image.height}" '
        f'alt="{caption}, {role}" src="data:image/png;base64,{data}"></figure>'
    )
