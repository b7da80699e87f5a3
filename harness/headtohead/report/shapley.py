"""A Shapley path in a report: its answer in one sentence, and the section on its choices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from headtohead.analysis.contrasts import UNDETECTED, sensitivity
from headtohead.analysis.shapley import PathAnalysis, Share
from headtohead.analysis.study import Analysis
from headtohead.report.blocks import (
    Block,
    BulletList,
    Column,
    Heading,
    NamedFigure,
    Note,
    Paragraph,
    Table,
    TableCell,
    TableRow,
)
from headtohead.report.cells import paired_cell, verdict_cells, verdict_columns
from headtohead.statistics.paired_tests import Paired
from headtohead.storage.metrics import readable, show

COUNTED_IN_TOKENS = ("token_accuracy", "loss", "perplexity")
"""Metrics whose value depends on what a token is."""

MOST_NAMES = 5
"""Choices named one by one in a part of the sentence; the table names all."""


def path_answer(path: PathAnalysis) -> str:
    """Return which choice accounts for most of the distance, as far as the runs tell."""
    found = [share for share in path.shares if share.contrast.found]
    parts = [_distance(path), *_largest(path, found)]
    undetected = [share for share in path.shares if share.undetected]
    mixed = [share for share in path.shares if share.mixed]
    unknown = [share for share in path.shares if not share.known]
    seen = sensitivity([share.contrast for share in undetected])
    if undetected and not found and not unknown and not mixed:
        parts.append(f"no choice made a detectable difference{seen}")
    elif undetected:
        parts.append(f"no difference detected for {_names(undetected)}{seen}")
    if mixed:
        named = [share.name + _over_orders(share) for share in mixed[:MOST_NAMES]]
        more = f" and {len(mixed) - MOST_NAMES} more" if len(mixed) > MOST_NAMES else ""
        parts.append(
            f"inconclusive on average: {' and '.join(named)}{more}{sensitivity([share.contrast for share in mixed])}"
        )
    nothing = [share for share in path.shares if share.nothing or (_identical(share) and not share.mixed)]
    if nothing:
        parts.append(f"{_names(nothing)} changed no score")
    if unknown:
        parts.append(f"not judged: {_names(unknown)} ({unknown[0].contrast.reason})")
    return "; ".join(parts) + "."


def _distance(path: PathAnalysis) -> str:
    start, end = path.names
    metric = readable(path.distance.metric)
    whole = path.distance.paired
    if whole is None:
        reason = (path.distance.reason or "").removeprefix("not ranked: ")
        return f"the distance from {start} to {end} is not known ({reason})"
    if path.distance.verdict == UNDETECTED:
        return f"between {start} and {end} {path.distance.words} in {metric}"
    if whole.mean == 0:
        return f"{start} and {end} have the same {metric}"
    return f"from {start} to {end} {metric} changes by {_amount(whole, path.distance.metric)}{_untested(whole)}"


def _largest(path: PathAnalysis, found: list[Share]) -> list[str]:
    """Return the choice that accounts for most of the distance, then the other detected shares."""
    if not found:
        return _largest_untested(path)
    whole = path.distance.paired
    along = [share for share in found if whole and share.mean * whole.mean > 0]
    first = (along or found)[0]
    metric = path.distance.metric
    if along and path.distance.found:
        part = "most" if path.is_most(first) else "the largest part"
        verb = f"accounts for {part} of it"
    else:
        verb = "has the largest share"
    lead = f"{_in_full(first)} {verb}, {_share_amount(first)}{_over_orders(first)}"
    others = [share for share in found if share is not first]
    if not others:
        return [lead]
    named = ", ".join(f"{share.name} {_share_amount(share)}" for share in others[:MOST_NAMES])
    more = others[MOST_NAMES:]
    rest = f" and {len(more)} more of at most {show(abs(more[0].mean), metric)} each" if more else ""
    return [lead, f"also detected: {named}{rest}"]


def _largest_untested(path: PathAnalysis) -> list[str]:
    known = [share for share in path.known if share.contrast.paired is not None]
    if not known or path.distance.paired is None:
        return []
    if path.distance.paired.kind == "single":
        return [
            f"the largest share is {known[0].name}'s, {_share_amount(known[0])}; one seed cannot tell it from chance"
        ]
    return []


def _in_full(share: Share) -> str:
    return f"{share.name} ({share.before} → {share.after})"


def _share_amount(share: Share) -> str:
    paired = share.contrast.paired
    return _amount(paired, share.contrast.metric) if paired else "0"


def _amount(paired: Paired, metric: str) -> str:
    size = show(paired.mean, metric, signed=True)
    if paired.kind == "constant":
        return f"{size} in every seed"
    if not math.isfinite(paired.low):
        return size
    low, high = (show(end, metric, signed=True) for end in (paired.low, paired.high))
    return f"{size} (95 % interval {low} to {high})"


def _untested(paired: Paired) -> str:
    return ", one seed" if paired.kind == "single" else ""


def _over_orders(share: Share) -> str:
    """Return what the share is an average of, where orders differ."""
    spread = share.contrast.spread
    if spread is None:
        return ""
    low, high = (show(end, share.contrast.metric, signed=True) for end in spread)
    return f", {low} to {high} in single orders" if low != high else ""


def _names(shares: list[Share]) -> str:
    names = [share.name for share in shares]
    if len(names) > MOST_NAMES:
        return f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _identical(share: Share) -> bool:
    return share.contrast.paired is not None and share.contrast.paired.kind == "identical"


def path_blocks(analysis: Analysis, figures: Sequence[str] = ()) -> list[Block]:
    """Return the section, nothing for an experiment without a path."""
    path = analysis.path
    if path is None:
        return []
    start, end = path.names
    blocks: list[Block] = [
        Heading(2, "Choice by choice", "path", "Choice by choice"),
        Paragraph(
            f"What each choice changes in {readable(path.distance.metric)} on the way from {start} to {end}, averaged "
            "over the walked orders, with its 95 % interval over seeds. Alone: applied to the start by itself; last: "
            "at the end, by what taking it out costs. These two are described, not tested.",
            "note",
        ),
        choice_table(path),
    ]
    if undetected := undetected_choices(path):
        blocks.append(Paragraph(undetected))
    blocks.append(BulletList((*sampled_orders(analysis, path), *inseparable_choices(path))))
    if "contrasts" in figures:
        caption = (
            "Every point is one seed, averaged over the walked orders; the bar is the 95 % interval of the mean. Grey: "
            "no difference detected."
        )
        blocks.append(NamedFigure("contrasts", "shares, every seed a point", caption))
    return blocks


def waterfall(path: PathAnalysis) -> NamedFigure:
    """Return the figure that leads from the start's score to the end's."""
    start, end = path.names
    caption = (
        f"From the score of {start} to that of {end}, each choice by its share, largest first. Black lines are 95 % "
        "intervals over seeds, thin strokes what the choice changed in single orders, "
        f"{path.walked} of {path.possible:,} that there are. Grey: no difference detected."
    )
    return NamedFigure("waterfall", "the distance, choice by choice", caption)


def choice_table(path: PathAnalysis) -> Table:
    """Return the choices, largest share first, then what they leave of the distance, and the distance."""
    verdict, *tests = verdict_columns(path.family.tested, "choices")
    orders = (
        "smallest and largest change among the walked orders; below it the standard error of the share as an "
        "estimate of the average over all orders"
    )
    columns = (
        Column("choice", align="left"),
        Column("share"),
        verdict,
        Column("over\norders", tooltip=orders),
        Column("alone"),
        Column("last"),
        *tests,
    )
    metric = path.distance.metric
    rows = [_choice(share) for share in path.shares]
    if path.remainder and not math.isnan(path.remainder):
        rows.append(TableRow((TableCell("not judged"), TableCell(show(path.remainder, metric, signed=True)))))
    whole = TableCell("whole distance"), paired_cell(path.distance.paired, metric), TableCell(path.distance.words)
    return Table(columns, (*rows, TableRow(whole, emphasised=True)))


def undetected_choices(path: PathAnalysis) -> str | None:
    """Return the choices without a detectable difference, by name."""
    if not any(share.undetected or share.nothing for share in path.shares):
        return None
    names = [share.name for share in path.shares if share.known and not share.contrast.found and not share.mixed]
    return f"No detectable difference: {', '.join(names)}."


def sampled_orders(analysis: Analysis, path: PathAnalysis) -> list[str]:
    """Return which orders of the choices were walked and which were not."""
    return [*_orders(path), _points(analysis, path), *_blocked(path), *_tokens(analysis, path)]


def inseparable_choices(path: PathAnalysis) -> list[str]:
    """Return the choices that do not exist without another one."""
    return [*_alone(path), *_together(path)]


def _choice(share: Share) -> TableRow:
    contrast, metric = share.contrast, share.contrast.metric
    spread = [show(end, metric, signed=True) for end in contrast.spread or ()]
    verdict, *tests = verdict_cells(contrast)
    return TableRow(
        (
            TableCell(share.name, (Note(f"{share.before} → {share.after}", "interval wrap"),)),
            TableCell("0", tooltip=contrast.reason or "")
            if share.nothing
            else paired_cell(contrast.paired, metric, contrast.reason),
            verdict,
            TableCell(" to ".join(spread) or "–", (Note(f"± {show(share.order_error, metric)}"),)),
            paired_cell(share.alone.paired, metric, share.alone.reason),
            paired_cell(share.without.paired, metric, share.without.reason),
            *tests,
        )
    )


def _orders(path: PathAnalysis) -> list[str]:
    walked, possible = path.walked, path.possible
    if walked == possible:
        return [
            f"All {possible} orders of the {len(path.record.choices)} choices "
            "were walked: the shares are Shapley values of these runs."
        ]
    return [
        f"{walked} of {possible:,} orders were walked, drawn at random (seed "
        f"{path.record.orders.seed}), each with its reverse where both have a "
        "meaning. A share is the average over these; the other orders were not sampled. The "
        "range is over the walked orders, ± the standard error of a share as an estimate of "
        "the average over all orders; the interval is over seeds and knows nothing of orders."
    ]


def _points(analysis: Analysis, path: PathAnalysis) -> str:
    choices = len(path.record.choices)
    trained = len(analysis.frames.variants)
    return f"{choices} choices make {2**choices:,} points; {trained} of them are part of this study."


def _blocked(path: PathAnalysis) -> list[str]:
    orders = path.record.orders
    number = sum(orders.blocked.values())
    if not number:
        return []
    reasons = "; ".join(f"{reason} ({times})" for reason, times in orders.blocked.items())
    return [
        f"{number} of the {orders.tried} orders looked at pass a point that has no meaning: "
        f"{reasons}. Orders that pass none were walked first, so that shares are averages "
        "over orders of that kind."
    ]


def _tokens(analysis: Analysis, path: PathAnalysis) -> list[str]:
    metric = path.distance.metric
    counted = metric.rsplit("/", 1)[-1].removesuffix("_alone") in COUNTED_IN_TOKENS
    prints = analysis.frames.runs["data_hash"].dropna().nunique()
    if not counted or prints < 2:
        return []
    return [
        f"The points make tokens of the sentences in {prints} ways; {readable(metric)} is "
        "taken over each point's own tokens, boundary tokens included, so that a choice can "
        "move it by changing what is counted."
    ]


def _alone(path: PathAnalysis) -> list[str]:
    lines = []
    start, end = path.names
    for apart in path.record.apart:
        where = f"applied alone to {start}" if apart.end == "from" else f"taken out of {end}"
        partners = f"; it has one together with {' or '.join(apart.needs)}" if apart.needs else ""
        lines.append(f"{apart.choice} {where} has no meaning: {apart.reason}{partners}.")
    return lines


def _together(path: PathAnalysis) -> list[str]:
    steps = Counter(frozenset(step.choices) for walk in path.record.walks for step in walk if len(step.choices) > 1)
    names = [choice.name for choice in path.record.choices]
    return [
        f"{' and '.join(name for name in names if name in group)} were applied together in "
        f"{times} of {path.walked} walks, being undefined apart there; that joint effect "
        "is a row of its own, and the shares of each alone are of the other walks."
        for group, times in steps.items()
    ]
