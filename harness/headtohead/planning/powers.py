"""The power of a plan's contrasts, with the standard deviations of its finished runs."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict

from headtohead.planning.plan import Plan
from headtohead.planning.power import Power
from headtohead.planning.variants import comparison_group
from headtohead.storage.contrasts import DeclaredContrast
from headtohead_judge.differences import pair_differences, score_weights

_Side = tuple[str, str, tuple[int, int] | None]
"""A variant, a metric and the source lengths that count, if not all."""


def powers_of(plan: Plan) -> tuple[Power, ...]:
    """Return the power of each family of contrasts, for each metric of the family.

    Contrasts of equal scores are not tested, and contrasts of the same scores are counted once.
    """
    primary = plan.metrics.primary
    trained = {slug: variant.record.equal_to or slug for slug, variant in plan.by_slug.items()}
    scores: dict[_Side, dict[int, float]] = defaultdict(dict)
    for finished in plan.finished:
        for name, value in finished.metrics.items():
            if value is not None and math.isfinite(value):
                scores[finished.run.variant, name, None][finished.run.seed] = value
    families: dict[str, dict[tuple[tuple[_Side, _Side], ...], str]] = {}
    for contrast in plan.contrasts:
        own: tuple[str, tuple[int, int] | None] = (primary, None)
        other = own
        if isinstance(contrast, DeclaredContrast):
            own = contrast.metric or primary, contrast.lengths
            other = contrast.against_metric or own[0], contrast.against_lengths or own[1]
        sides = tuple(
            ((trained[left], *own), (trained[right], *other)) for left, right in contrast.pairs
        )
        if any(left != right for left, right in sides):
            families.setdefault(contrast.kind, {}).setdefault(sides, contrast.name)
    given = plan.loaded.file.margin
    margins = given if isinstance(given, dict) else {primary: given}
    variants = len({*trained.values()}) // len(
        {tuple(comparison_group(plan.by_slug[own].record.axes).items()) for own in trained}
    )
    seeds = plan.looks.seeds[-1] if plan.looks else len(plan.design.seeds)
    powers = []
    for family, tested in families.items():
        for metric in dict.fromkeys(sides[0][0][1] for sides in tested):
            means, weights, own_names = [], [], []
            for sides, name in tested.items():
                if sides[0][0][1] != metric:
                    continue
                # Pairs of equal variants enter an interaction as zeros.
                averaged = (
                    sides
                    if family == "interaction"
                    else [pair for pair in sides if pair[0] != pair[1]]
                )
                differences = pair_differences(scores, averaged)[1]
                if family == "interaction":  # the second pair of each setting has its sides swapped
                    differences = differences[::2] + differences[1::2]
                means.append(differences.mean(axis=0))
                squares = (weight**2 for weight in score_weights(averaged).values())
                weights.append(sum(squares) / len(differences) ** 2)
                own_names.append(name)
            sds = [float(differences.std(ddof=1)) for differences in means if len(differences) > 1]
            powers.append(
                Power(
                    family,
                    tuple(own_names),
                    seeds,
                    variants,
                    metric,
                    primary=primary,
                    tested=len(tested),
                    weight=max(weights),
                    margin=margins.get(metric),
                    sd=(statistics.median(sds) or None) if sds else None,
                    looks=plan.looks,
                )
            )
    return tuple(powers)
