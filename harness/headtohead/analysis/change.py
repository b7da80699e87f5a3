"""What a contrast changes, and the setting of a variant, for tables over many reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.study import Analysis
from headtohead.config.labels import Scalar
from headtohead.storage.experiment import VariantRecord
from headtohead.storage.frames import Frames
from headtohead_judge.contrast import Contrast, Side, with_sign


class Change(NamedTuple):
    """The only field in which the variants of a contrast differ, with its value on both sides."""

    field: str
    before: Scalar
    after: Scalar

    @property
    def fields(self) -> dict[str, Scalar]:
        """The change as in ``answer.json``."""
        return {"field": self.field, "from": self.before, "to": self.after}


def pairs_of(contrast: Contrast) -> Iterator[tuple[Side, Side]]:
    """Yield the sides of every setting in pairs, that with a positive weight first.

    If a setting has more sides of one sign, those of the other sign are repeated from the first one. Sides of both
    signs exist in every setting, because its weights add up to 0.
    """
    for setting in contrast.settings:
        positive = with_sign(setting, 1.0)
        negative = with_sign(setting, -1.0)
        for index in range(max(len(positive), len(negative))):
            yield positive[index % len(positive)], negative[index % len(negative)]


def change_of(frames: Frames, contrast: ContrastResult) -> Change | None:
    """Return the change that a contrast measures, from its side with a negative weight to that with a positive one.

    None for an interaction, for a contrast of two metrics or two ranges of lengths, and unless all its pairs differ in
    a single field and by the same values.
    """
    if contrast.family == "interaction":
        return None
    changes = set()
    for side, against in pairs_of(contrast.contrast):
        if side.metric != against.metric or side.lengths != against.lengths:
            return None
        changes.add(_only_change(frames.by_slug[side.variant], frames.by_slug[against.variant]))
    if len(changes) != 1:
        return None
    return changes.pop()


def _only_change(variant: VariantRecord, against: VariantRecord) -> Change | None:
    """Return the only axis in which two variants differ; None if there are several, or none.

    An axis that only one of them has does not count.
    """
    changed = [
        axis for axis, value in variant.axes.items() if against.axes.get(axis, value) != value
    ]
    if len(changed) != 1:
        return None
    (axis,) = changed
    return Change(axis, against.axes[axis], variant.axes[axis])


def setting_of(analysis: Analysis, slug: str) -> dict[str, Any]:
    """Return the setting of a variant as in ``answer.json``.

    ``width`` is ``d_model``. ``d_ff_asked`` is the ``d_ff`` before matching. ``layers`` lists
    decoder layers, or encoder and decoder layers. ``steps`` are planned steps. ``passes`` are passes over the
    training data, NaN without a finished run with enough validation losses for a trend. ``matched`` is the count that
    matching makes equal, None without matching; ``tuned`` lists the tuned fields.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
        KeyError: If the experiment has no variant ``slug``.
    """
    variant = analysis.frames.by_slug[slug]
    model = variant.config.model
    layers = [model.decoder_layers]
    if model.architecture == "encoder-decoder":
        layers = [model.encoder_layers, model.decoder_layers]
    trend = analysis.convergence.trends[analysis.frames.trained(variant.slug)]
    tuning = analysis.frames.record.tuning
    return {
        "data": variant.data_name,
        "width": model.d_model,
        "d_ff": variant.d_ff,
        "d_ff_asked": variant.d_ff_asked,
        "layers": layers,
        "steps": variant.steps,
        "passes": round(trend.passes, 2),
        "matched": None if variant.match == "none" else variant.match,
        "tuned": [] if tuning is None else list(tuning.fields),
    }
