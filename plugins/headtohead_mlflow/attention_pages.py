"""Pages that compare the attention of all variants: one HTML file per probe sentence, with its images inside."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from headtohead.config.labels import listed
from headtohead.errors import HeadToHeadError
from headtohead.escaping import visible
from headtohead.figures.sheet import grid, tiles
from headtohead.schema.roles import ROLE_NAMES, ROLES
from headtohead.storage import states
from headtohead.storage.attention_maps import ProbeMaps, load_maps
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

PAGE = (
    '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<title>Attention: {sentence}</title><style>{style}</style>"
    "<h1>Attention of every variant: “{sentence}”</h1>"
    "<p>Rows are queries, columns are keys. Blue is a positive weight, orange a negative one; full colour is 1, "
    "or the largest weight if that is larger. Layers and heads are numbered from 0; heads with the same number can "
    "have different functions in two models.</p>{omitted}{sections}"
)
NO_DIFFERENCE = "<p>No difference to the baseline: it has other heads, layers or tokens.</p>"


class AttentionPage(NamedTuple):
    """The file name of a page, its probe sentence and its HTML."""

    name: str
    sentence: str
    html: str


@dataclass(frozen=True)
class ShownRun:
    """A run on a page, with its maps of the probe sentence."""

    run: TrackedRun
    probe: ProbeMaps
    is_baseline: bool

    @property
    def title(self) -> str:
        """The variant and its seed."""
        baseline = ", the baseline" if self.is_baseline else ""
        return f"{self.run.variant.title} (seed {self.run.seed}{baseline})"

    def weights(self, role: str) -> NDArray[np.float32] | None:
        """Return the maps of a role; None without any, and for a damaged file, which is reported with its run."""
        with suppress(HeadToHeadError):
            return self.probe.weights.get(role)
        return None


@dataclass
class PageSize:
    """The bytes of a page's figures, and the titles of the variants that are left out above `MAX_BYTES`."""

    size: int = 0
    omitted: set[str] = field(default_factory=set)

    @property
    def is_full(self) -> bool:
        """Whether no further figure fits."""
        return self.size > MAX_BYTES


def attention_pages(study: TrackedStudy) -> Iterator[AttentionPage]:
    """Yield a page per probe sentence, with the maps of each variant's first finished seed.

    Runs can have recorded different sentences: if the experiment file changed, or if a sentence has words that the
    vocabulary of a run refuses.
    """
    runs_by_sentence: dict[tuple[str, str | None], list[ShownRun]] = {}
    for run, maps in _shown_maps(study):
        is_baseline = run.variant.slug == study.record.baseline
        for probe in maps:
            runs = runs_by_sentence.setdefault(probe.sentence, [])
            runs.append(ShownRun(run, probe, is_baseline))
    for index, ((source, target), runs) in enumerate(runs_by_sentence.items()):
        sentence = source or target or ""  # a text has no sources
        yield AttentionPage(f"probe-{index}.html", sentence, _page(sentence, runs))


def _shown_maps(study: TrackedStudy) -> list[tuple[TrackedRun, list[ProbeMaps]]]:
    """Return the first finished run of each variant with its maps, that of the baseline first."""
    shown: dict[str, tuple[TrackedRun, list[ProbeMaps]]] = {}
    for run in study.runs():
        slug = run.variant.slug
        with suppress(HeadToHeadError):  # a damaged run has been reported when it was logged
            if slug not in shown and run.begun() and run.state == states.DONE:
                maps = load_maps(run.path)
                if maps:
                    shown[slug] = (run, maps)
    return sorted(shown.values(), key=lambda item: item[0].variant.slug != study.record.baseline)


def _page(sentence: str, runs: Sequence[ShownRun]) -> str:
    """Return the HTML of the page of a probe sentence, a section per role."""
    page_size = PageSize()
    sections = [_role_section(runs, role, page_size) for role in reversed(ROLES)]
    omitted = ""
    if page_size.omitted:
        titles = listed(sorted(page_size.omitted))
        omitted = f"<p>Too large for this page: {escape(titles)}.</p>"
    content = {"style": STYLE, "omitted": omitted, "sections": "".join(sections)}
    return visible(PAGE.format(sentence=escape(sentence), **content))


def _role_section(runs: Sequence[ShownRun], role: str, page_size: PageSize) -> str:
    """Return the maps of a role of all variants; variants that do not fit are added to ``page_size.omitted``."""
    baseline = runs[0] if runs[0].is_baseline else None
    variants = []
    widest = 0
    for shown in runs:
        weights = None if page_size.is_full else shown.weights(role)
        if weights is not None:
            width, figures = _figure("weights", weights, shown.probe, role)
            figures += _difference(shown, weights, baseline, role)
            page_size.size += len(figures)
            widest = max(widest, 2 * width + GAP)
        if page_size.is_full:
            page_size.omitted.add(shown.run.variant.title)
        elif weights is not None:
            heading = f"<h3>{escape(shown.title)}</h3>"
            variants.append(f'<section>{heading}<div class="maps">{figures}</div></section>')
    if not variants:
        return ""
    columns = f'<div class="variants" style="--wide:{widest}px">'
    section = f"<h2>{ROLE_NAMES[role]}</h2>{columns}{''.join(variants[:MAX_OPEN])}</div>"
    folded = variants[MAX_OPEN:]
    if folded:
        summary = f"<summary>{len(folded)} more variants</summary>"
        section += f"<details>{summary}{columns}{''.join(folded)}</div></details>"
    return section


def _difference(
    shown: ShownRun, weights: NDArray[np.float32], baseline: ShownRun | None, role: str
) -> str:
    """Return the figure of the weights minus the baseline's, or why there is none if heads or tokens differ.

    Empty for the baseline itself, and if the baseline has no maps of the role.
    """
    if baseline is None or shown is baseline:
        return ""
    baseline_weights = baseline.weights(role)
    if baseline_weights is None:
        return ""
    has_tokens = baseline.probe.tokens(role) == shown.probe.tokens(role)
    if not has_tokens or baseline_weights.shape != weights.shape:
        return NO_DIFFERENCE
    _, figure = _figure("minus the baseline", weights - baseline_weights, shown.probe, role)
    return figure


def _figure(
    caption: str, weights: NDArray[np.float32], probe: ProbeMaps, role: str
) -> tuple[int, str]:
    """Return the width and the element of a figure of ``[layer, head, query, key]``, a row per layer if it fits."""
    heads = tiles(weights, *probe.tokens(role))
    fitting = WIDTH // heads[0].width
    heads_per_row = max(1, min(weights.shape[1], fitting))
    image = grid(heads, heads_per_row)
    content = io.BytesIO()
    few_colours = image.quantize(COLOURS, Image.Quantize.FASTOCTREE)
    few_colours.save(content, "png", compress_level=8)  # 9 takes twice the time and saves 2 %
    data = base64.b64encode(content.getvalue()).decode("ascii")
    return image.width, (
        f'<figure><figcaption>{caption}</figcaption><img width="{image.width}" height="{image.height}" '
        f'alt="{caption}, {role}" src="data:image/png;base64,{data}"></figure>'
    )
