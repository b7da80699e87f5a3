"""Simulated studies with known effects: rates of wrong verdicts, coverage of intervals and power.

    python benchmarks/simulation.py --write docs/concepts/simulated-studies.md [--studies 20000]

The studies are judged by the rules of `headtohead_judge`. The page that is written names each cell outside its limit.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from simulated_intervals import (
    Flags,
    Intervals,
    any_direction,
    crossed_intervals,
    moderated_intervals,
    paired_intervals,
    with_first,
)
from simulated_ledger import Chains, decide
from simulated_studies import (
    Draw,
    baseline_without_seed_effect,
    by_passage,
    corpus_values,
    exact_matches,
    heavy_tails,
    is_named_collapsed,
    lattice,
    normal,
    one_large_seed_effect,
    skewed,
    unequal_seed_effects,
    with_collapses,
)
from simulated_tuning import read_results, section

from headtohead_judge.block_model import expected_degrees
from headtohead_judge.looks import Looks
from headtohead_judge.paired_tests import ALPHA, level_of_each, paired_differences
from headtohead_judge.power import POWER, minimum_detectable_effect, seeds_needed
from headtohead_judge.random_effects import combine

Floats = NDArray[np.float64]

MAX_WRONG = 0.055
"""Largest accepted rate of wrong verdicts."""
MIN_COVERAGE = 0.94
"""Smallest accepted coverage of simultaneous intervals."""
MARGIN = 2.0
"""Margin in standard deviations of a score over seeds."""
VALUES = 30_000_000
"""Largest number of values that are drawn at once."""


@dataclass(frozen=True)
class Cell:
    """A measured rate with its accepted range; NaN for a cell that is not simulated."""

    rate: float
    low: float = 0.0
    high: float = 1.0

    @property
    def is_missed(self) -> bool:
        """Whether the rate is outside its range."""
        return not math.isnan(self.rate) and not self.low <= self.rate <= self.high

    @property
    def text(self) -> str:
        """The rate in percent, in bold type outside its range."""
        if math.isnan(self.rate):
            return "–"
        percent = f"{100 * self.rate:.1f}"
        return f"**{percent}**" if self.is_missed else percent


@dataclass(frozen=True)
class Table:
    """A table of rates in percent.

    Attributes:
        title: The heading.
        text: What was simulated, and the limits.
        columns: The headings of the columns after the first one.
        rows: The cells by label of their row.
    """

    title: str
    text: str
    columns: Sequence[str]
    rows: Mapping[str, Sequence[Cell]]

    def missed(self) -> list[str]:
        """Return the names of the cells outside their range, with their rates."""
        names = []
        for label, cells in self.rows.items():
            outside = []
            for column, cell in zip(self.columns, cells, strict=True):
                if cell.is_missed:
                    outside.append(f"{100 * cell.rate:.1f} % ({column})")
            if outside:
                names.append(f"{label}: {', '.join(outside)}")
        return names

    def markdown(self) -> str:
        """Return heading, text and table."""
        lines = [f"## {self.title}", "", self.text, ""]
        lines.append(f"| % | {' | '.join(self.columns)} |")
        lines.append(f"|---|{'---:|' * len(self.columns)}")
        for label, cells in self.rows.items():
            lines.append(f"| {label} | {' | '.join(cell.text for cell in cells)} |")
        return "\n".join(lines)


@dataclass(frozen=True)
class Family:
    """The contrasts of a study.

    Attributes:
        label: What is compared.
        variants: Number of variants of the study.
        weights: The weights of the contrasts ``[contrast, variant]``.
    """

    label: str
    variants: int
    weights: Floats


def declared(contrasts: int, variants: int) -> Family:
    """Return the family of the first contrasts of variants with the first one."""
    noun = "contrast" if contrasts == 1 else "contrasts"
    label = f"{contrasts} {noun}, {variants} variants"
    return Family(label, variants, with_first(variants, contrasts))


def product_families() -> list[Family]:
    """Return the families of a 3 × 2 design: contrasts of variants, main effects and interactions."""
    each = np.eye(6).reshape(3, 2, 6)
    rows = each.mean(axis=1)
    columns = each.mean(axis=0)
    main = np.array([rows[1] - rows[0], rows[2] - rows[0], columns[1] - columns[0]])
    effects = each[:, 1] - each[:, 0]
    interactions = np.array([effects[1] - effects[0], effects[2] - effects[0]])
    return [
        declared(5, 6),
        Family("main effects, 3 × 2", 6, main),
        Family("interactions, 3 × 2", 6, interactions),
    ]


FAMILIES = [declared(1, 2), declared(2, 3), declared(5, 6), declared(11, 12)]
FEW_CONTRASTS = [declared(1, 6), declared(2, 6)]
SEEDS = (3, 4, 6, 12)
CONDITIONS: dict[str, Draw] = {
    "equal variances": normal(),
    "baseline sd × 2": normal((2.0,)),
    "baseline sd × 4": normal((4.0,)),
    "a variant's sd × 2": normal((1.0, 2.0)),
    "a variant's sd × 4": normal((1.0, 4.0)),
    "seed effects of 0.5 to 2 sd": unequal_seed_effects,
    "a seed effect of 3 sd in a variant, 1 sd in others": one_large_seed_effect,
    "seed effect of 1 sd, none in the baseline": baseline_without_seed_effect(1.0),
    "seed effect of 2 sd, none in the baseline": baseline_without_seed_effect(2.0),
}


def in_parts(studies: int, values: int) -> Iterator[int]:
    """Yield numbers of studies with this sum, of which each needs at most `VALUES` values.

    Args:
        studies: The number of studies in total.
        values: The number of values of a study.
    """
    most = max(1, VALUES // values)
    while studies > 0:
        yield min(most, studies)
        studies -= most


def mean_of_parts(rates: Sequence[float], parts: Sequence[int]) -> float:
    """Return the mean of rates, weighted by the number of studies."""
    return float(np.average(rates, weights=parts))


def wrong_directions(
    generator: np.random.Generator, studies: int, draw: Draw, family: Family, seeds: int
) -> float:
    """Return the fraction of studies without differences that have a wrong direction."""
    scores = draw(generator, studies, family.variants, seeds)
    return float(any_direction(scores, family.weights).mean())


def direction_tables(generator: np.random.Generator, studies: int) -> list[Table]:
    """Return wrong directions by family, number of seeds and kind of variance."""
    tables = []
    text = (
        "Studies without any difference in which an interval excludes 0, so that a direction is wrong. An interval "
        "moves with the effect, so 100 minus this is the simultaneous coverage for any effects. Limit: 5.5."
    )
    few_text = f"The same where fewer contrasts are declared than the table has variants. {text.split('. ')[-1]}"
    product_text = (
        f"The same for products of two axes, with one family for each row. {text.split('. ')[-1]}"
    )
    for title, families, intro in (
        ("Wrong directions", FAMILIES, text),
        ("Wrong directions of few declared contrasts", FEW_CONTRASTS, few_text),
        ("Wrong directions in products", product_families()[1:], product_text),
    ):
        rows = {}
        for family in families:
            for name, draw in CONDITIONS.items():
                cells = []
                for seeds in SEEDS:
                    rate = wrong_directions(generator, studies, draw, family, seeds)
                    cells.append(Cell(rate, high=MAX_WRONG))
                rows[f"{family.label}; {name}"] = cells
        tables.append(Table(title, intro, [f"{seeds} seeds" for seeds in SEEDS], rows))
    return tables


SEVERAL_LARGER: dict[str, Draw] = {
    "sd × 3 of two variants": normal((1.0, 3.0, 3.0)),
    "sd × 5 of two variants": normal((1.0, 5.0, 5.0)),
    "sd × 10 of two variants": normal((1.0, 10.0, 10.0)),
    "sd × 6 of three variants": normal((1.0, 6.0, 6.0, 6.0)),
}


def several_larger_tables(generator: np.random.Generator, studies: int) -> list[Table]:
    """Return wrong directions of studies with several variants of a larger variance."""
    family = declared(5, 6)
    seeds_of_columns = (2, *SEEDS)
    rows = {}
    for name, draw in SEVERAL_LARGER.items():
        cells = []
        for seeds in seeds_of_columns:
            rate = wrong_directions(generator, studies, draw, family, seeds)
            cells.append(Cell(rate, high=MAX_WRONG))
        rows[f"{family.label}; {name}"] = cells
    text = "Studies without any difference, with several variants of a larger variance. Limit: 5.5."
    columns = [f"{seeds} seeds" for seeds in seeds_of_columns]
    return [Table("Wrong directions with several larger variances", text, columns, rows)]


def distribution_tables(generator: np.random.Generator, studies: int) -> list[Table]:
    """Return wrong directions of scores that are not normal."""
    rows = {}
    kinds: dict[str, Draw] = {
        "t with 3 degrees of freedom": heavy_tails,
        "correct answers of 200, 99 % correct": lattice,
        "lognormal baseline": skewed,
    }
    for name, draw in kinds.items():
        for family in (declared(1, 2), declared(5, 6)):
            cells = []
            for seeds in (6, 12):
                rate = wrong_directions(generator, studies, draw, family, seeds)
                cells.append(Cell(rate, high=MAX_WRONG))
            rows[f"{family.label}; {name}"] = cells
    text = "Studies without any difference, with scores that are not normal. Limit: 5.5."
    return [Table("Scores that are not normal", text, ["6 seeds", "12 seeds"], rows)]


def whole_report_tables(generator: np.random.Generator, studies: int) -> list[Table]:
    """Return how many reports of a 3 × 2 design without differences have a direction in one of three families."""
    cells = []
    for seeds in (3, 6, 12):
        scores = normal()(generator, studies, 6, seeds)
        wrong = [any_direction(scores, family.weights) for family in product_families()]
        cells.append(Cell(float(np.any(wrong, axis=0).mean()), high=0.15))
    text = (
        "A report of a 3 × 2 design has three families: variants, main effects and interactions. Each has its limit of "
        "5 %. These are reports without any difference that have a direction in any of the three. Limit: 15."
    )
    columns = ["3 seeds", "6 seeds", "12 seeds"]
    return [Table("Whole reports", text, columns, {"equal variances": cells})]


def power_tables(generator: np.random.Generator, studies: int) -> list[Table]:
    """Return how many studies find the effect of a variant."""
    rows = {}
    family = declared(5, 6)
    cases: list[tuple[str, float, float, Draw, int]] = [
        ("2 sd, in one variant", 2.0, 0.0, normal(), 1),
        ("2 sd, in all five variants", 2.0, 0.0, normal(), 5),
        ("2 sd, another variant's sd × 4", 2.0, 0.0, normal((1, 1, 4)), 1),
        ("2 sd, another variant's sd × 10", 2.0, 0.0, normal((1, 1, 10)), 1),
        ("1.5 sd; seeds explain 30 % of the variance", 1.5, 0.3, normal(), 1),
        ("1.5 sd", 1.5, 0.0, normal(), 1),
        ("1 sd", 1.0, 0.0, normal(), 1),
    ]
    at_least = {"2 sd, in one variant": 0.64, "1.5 sd; seeds explain 30 % of the variance": 0.53}
    for label, effect, shared, draw, count in cases:
        cells = []
        for seeds in (3, 4, 6, 8, 12):
            scores = math.sqrt(1 - shared) * draw(generator, studies, 6, seeds)
            scores[:, 1 : 1 + count] += effect
            low = at_least.get(label, 0.0) if seeds == 6 else 0.0
            found = [_found(rule(scores, family.weights)) for rule in RULES]
            cells += [Cell(found[0], low=low), Cell(found[1])]
        rows[label] = cells
    columns = []
    for seeds in (3, 4, 6, 8, 12):
        columns += [f"{seeds} seeds", "paired t"]
    text = (
        "Studies of six variants that find the effect of the first of five contrasts. The effect is in standard "
        "deviations of a score. *Paired t*: intervals of paired t-tests at the same level. Limits: at least 64 for "
        "2 sd and 53 for 1.5 sd with six seeds."
    )
    return [
        Table("Effects that are found", text, columns, rows),
        _power_by_family(generator, studies),
    ]


RULES: tuple[Callable[[Floats, Floats], Intervals], ...] = (moderated_intervals, paired_intervals)


def _found(intervals: Intervals) -> float:
    """Return the fraction of studies that find the effect of the first contrast."""
    found = intervals.has_direction[:, 0] & (intervals.mean[:, 0] > 0)
    return float(found.mean())


def _power_by_family(generator: np.random.Generator, studies: int) -> Table:
    rows = {}
    for family in (*FAMILIES, *FEW_CONTRASTS):
        cells = []
        for seeds in (3, 4, 6, 8, 12):
            scores = normal()(generator, studies, family.variants, seeds)
            scores[:, 1] += 2.0
            for rule in RULES:
                cells.append(Cell(_found(rule(scores, family.weights))))
        rows[family.label] = cells
    columns = []
    for seeds in (3, 4, 6, 8, 12):
        columns += [f"{seeds} seeds", "paired t"]
    text = "Studies that find an effect of 2 standard deviations in the first contrast of a family."
    return Table("Effects that are found, by family", text, columns, rows)


def detectable_tables(generator: np.random.Generator, studies: int) -> list[Table]:
    """Return how many studies find a difference of the size that a report calls detectable."""
    rows = {}
    seeds_of = (2, 3, 4, 5, 6, 8, 12)
    for family in (*FAMILIES, *FEW_CONTRASTS):
        cells = []
        level = level_of_each(len(family.weights))
        for seeds in seeds_of:
            degrees = expected_degrees(family.variants, seeds, len(family.weights))
            effect = minimum_detectable_effect(math.sqrt(2), seeds, level=level, degrees=degrees)
            scores = normal()(generator, studies, family.variants, seeds)
            scores[:, 1] += effect
            cells.append(Cell(_found(moderated_intervals(scores, family.weights)), 0.77, 0.85))
        rows[family.label] = cells
    text = (
        "Studies with a difference of the size that plan and report call detectable (80 % power), which find it. "
        "Limits: 77 to 85."
    )
    return [
        Table("The detectable difference", text, [f"{seeds} seeds" for seeds in seeds_of], rows)
    ]


def margin_tables(generator: np.random.Generator, studies: int) -> list[Table]:
    """Return wrong words about the margin, and how often equal variants are equivalent."""
    wrong = {}
    conditions = {name: CONDITIONS[name] for name in ("equal variances", "baseline sd × 2")}
    conditions["lognormal baseline"] = skewed
    for name, draw in conditions.items():
        for seeds in SEEDS:
            scores = draw(generator, studies, 6, seeds)
            scores[:, 1:] += MARGIN
            at_margin = moderated_intervals(scores)
            scores[:, 1:] -= 1e-6
            below = moderated_intervals(scores)
            is_inside = at_margin.is_inside(MARGIN)
            is_equivalent = is_inside & ~at_margin.has_direction
            wrong[f"{name}; {seeds} seeds"] = [
                Cell(float(is_equivalent.any(axis=1).mean()), high=MAX_WRONG),
                Cell(float(is_inside.any(axis=1).mean()), high=MAX_WRONG),
                Cell(float(below.is_outside(MARGIN).any(axis=1).mean()), high=MAX_WRONG),
            ]
    text = (
        f"Studies of six variants, in which all five differences are equal to the margin of {MARGIN:g} standard "
        "deviations, or just below it. Limit: 5.5."
    )
    columns = ["equivalent", "equivalent, or by less than the margin", "by more than the margin"]
    equal = {}
    for margin in (1.0, 2.0, 3.0):
        cells = []
        for seeds in (3, 6, 12, 24):
            intervals = moderated_intervals(normal()(generator, studies, 6, seeds))
            is_equivalent = intervals.is_inside(margin) & ~intervals.has_direction
            cells.append(Cell(float(is_equivalent[:, 0].mean())))
        equal[f"margin of {margin:g} sd"] = cells
    equal_text = "Contrasts of six equal variants that are called equivalent."
    return [
        Table("Wrong words about the margin", text, columns, wrong),
        Table("Equal variants that are equivalent", equal_text,
              ["3 seeds", "6 seeds", "12 seeds", "24 seeds"], equal),
    ]  # fmt: skip


def detected_effect_tables(generator: np.random.Generator, studies: int) -> list[Table]:
    """Return the coverage of intervals of all effects, and of those that are found."""
    rows = {}
    for effect in (0.5, 1.0, 2.0):
        scores = normal()(generator, studies, 6, 6)
        scores[:, 1] += effect
        intervals = moderated_intervals(scores)
        covers = intervals.covers(effect)[:, 0]
        found = intervals.has_direction[:, 0]
        rows[f"{effect:g} sd"] = [
            Cell(float(covers.mean()), low=MIN_COVERAGE),
            Cell(float(covers[found].mean())),
        ]
    text = (
        "Intervals of one effect among five contrasts, with six seeds, that contain the effect. A small effect is "
        "found only if it is overestimated, so its interval covers it less often. "
        "Limit of the first column: at least 94."
    )
    columns = ["of all studies", "of studies that find it"]
    return [Table("Coverage of effects that are found", text, columns, rows)]


def look_tables(generator: np.random.Generator, studies: int) -> list[Table]:
    """Return how many studies without differences have a wrong direction at any look."""
    rows = {}
    for seeds in ((4, 6, 8, 12), (5, 10, 15, 20), (3, 6, 9, 12, 15, 18, 21, 24)):
        looks = Looks(seeds)
        for family in FAMILIES:
            level = looks.level(level_of_each(len(family.weights)))
            wrong = np.zeros(studies, dtype=bool)
            start = 0
            for part in in_parts(studies, family.variants * seeds[-1]):
                scores = normal()(generator, part, family.variants, seeds[-1])
                for count in seeds:
                    intervals = moderated_intervals(scores[:, :, :count], level=level)
                    wrong[start : start + part] |= intervals.has_direction.any(axis=1)
                start += part
            label = f"{', '.join(map(str, seeds))} seeds; {family.label}"
            rows[label] = [Cell(float(wrong.mean()), high=MAX_WRONG)]
    text = "Studies without any difference that have a wrong direction at any look. Limit: 5.5."
    return [Table("Looks", text, ["wrong direction"], rows)]


def saving_tables(generator: np.random.Generator, studies: int) -> list[Table]:
    """Return how many seeds studies with looks need, compared with a single look of the same power."""
    rows = {}
    for shared in (0.0, 0.5):
        sd = math.sqrt(2 * (1 - shared))  # of a difference of two variants by seed
        least = seeds_needed(1.0 / sd)
        differences = 1.0 / sd + generator.normal(size=(studies, 1, 3 * least))
        powers = [_detected(differences, seeds, ALPHA).mean() for seeds in range(2, 3 * least)]
        for number in (3, 5, 8):
            found, seeds = _smallest_design(differences, number, least)
            fixed = 2 + int(np.argmax(np.array(powers) >= found))
            label = f"seeds explain {100 * shared:.0f} %; {number} looks"
            rows[label] = [Cell(found, low=POWER - 0.01), Cell(1 - seeds / fixed)]
    text = (
        "Two variants that differ by 1 standard deviation of a score. The design has the fewest seeds at the last look "
        "with a power of 80 %. *Fewer seeds*: mean number of seeds, compared with a single look of no less power."
    )
    return [Table("Seeds that looks save", text, ["detected", "fewer seeds"], rows)]


def _smallest_design(differences: Floats, number: int, least: int) -> tuple[float, float]:
    """Return power and mean seeds of the looks with the fewest seeds that detect an effect often enough.

    Args:
        differences: The differences of two variants ``[study, 1, seed]``.
        number: Number of looks.
        least: Number of seeds of a single look with a power of `POWER`.
    """
    studies, _, most_seeds = differences.shape
    for most in range(least, most_seeds + 1):
        looks = Looks.planned(number, most)
        level = looks.level(ALPHA)
        is_found = np.zeros(studies, dtype=bool)
        seeds = np.full(studies, float(most))
        for count in reversed(looks.seeds):
            has_direction = _detected(differences, count, level)
            is_found |= has_direction
            seeds[has_direction] = count
        if is_found.mean() >= POWER:
            break
    return float(is_found.mean()), float(seeds.mean())


def _detected(differences: Floats, seeds: int, level: float) -> Flags:
    """Return whether paired t-tests of the first seeds of ``[study, 1, seed]`` detect a difference ``[study]``."""
    return paired_intervals(differences[:, :, :seeds], np.ones((1, 1)), level).has_direction[:, 0]


def passage_tables(generator: np.random.Generator, studies: int) -> list[Table]:
    """Return the coverage of intervals of losses on text, over seeds alone and with passages."""
    rows = {}
    for passages in (20, 100):
        for passage_sd in (0.0, 0.4, 1.6):
            for seeds in (3, 6, 12):
                shape = (6, seeds, passages)
                parts = list(in_parts(studies, math.prod(shape)))
                with_passages = []
                seeds_only = []
                for part in parts:
                    intervals = crossed_intervals(by_passage(generator, (part, *shape), passage_sd))
                    of_seeds = Intervals(intervals.mean, intervals.sources[:1], intervals.level)
                    with_passages.append(intervals.covers(0).all(axis=1).mean())
                    seeds_only.append(of_seeds.covers(0).all(axis=1).mean())
                rows[f"{passages} passages; passage sd {passage_sd:g}; {seeds} seeds"] = [
                    Cell(mean_of_parts(with_passages, parts), low=MIN_COVERAGE),
                    Cell(mean_of_parts(seeds_only, parts)),
                ]
    text = (
        "Losses of six equal variants on the passages of a text; seeds and passages are crossed. The passage sd is the "
        "standard deviation of a variant's mean over samples of this number of passages, where that of a run over "
        "seeds is 1. Studies in which all five intervals contain the difference on other text. Limit: at least 94."
    )
    return [Table("Other text", text, ["with passages", "over seeds only"], rows)]


def sentence_tables(generator: np.random.Generator, studies: int) -> list[Table]:
    """Return the coverage of intervals of exact match and of a corpus metric, over other sentences."""
    rows = {}
    sentences = 250
    for seeds, effect in ((3, 0.0), (6, 0.0), (6, 0.5)):
        covered = []
        parts = list(in_parts(studies, 2 * seeds * sentences))
        for part in parts:
            values, truth = exact_matches(generator, part, seeds, sentences, effect)
            covered.append(_coverage_of_one(values, truth))
        label = f"exact match; {seeds} seeds, difference {truth:.2f}"
        rows[label] = _cells_of_coverage(covered, parts)
    covered = []
    parts = list(in_parts(studies, 2 * 6 * sentences))
    for part in parts:
        values = corpus_values(generator, part, 6, sentences)
        covered.append(_coverage_of_one(values, 0.0))
    rows["corpus metric by jackknife values; 6 seeds, difference 0"] = _cells_of_coverage(
        covered, parts
    )
    text = (
        f"95 % intervals of the difference of two variants on {sentences} sentences that contain the difference on all "
        "sentences. Limit: at least 94."
    )
    return [Table("Other sentences", text, ["with sentences", "over seeds only"], rows)]


def _coverage_of_one(values: Floats, truth: float) -> tuple[float, float]:
    """Return the coverage of the intervals of two variants with sentences, and over seeds only."""
    intervals = crossed_intervals(values)
    of_seeds = Intervals(intervals.mean, intervals.sources[:1], intervals.level)
    return float(intervals.covers(truth).mean()), float(of_seeds.covers(truth).mean())


def _cells_of_coverage(covered: Sequence[tuple[float, float]], parts: Sequence[int]) -> list[Cell]:
    with_sentences, seeds_only = zip(*covered, strict=True)
    return [
        Cell(mean_of_parts(with_sentences, parts), low=MIN_COVERAGE),
        Cell(mean_of_parts(seeds_only, parts)),
    ]


def collapse_tables(generator: np.random.Generator, studies: int) -> list[Table]:
    """Return how many collapsed and healthy runs the rule names, and wrong directions without the named runs."""
    designs = ((2, 3), (2, 6), (2, 12), (6, 3), (6, 6), (6, 12))
    columns = [f"{variants} variants, {seeds} seeds" for variants, seeds in designs]
    named = {}
    for rate in (0.1, 0.3, 0.5):
        for depth, loss in ((30.0, "4.5"), (15.0, "2.1")):
            cells = []
            for variants, seeds in designs:
                scores = with_collapses(1, rate, depth)(generator, studies, variants, seeds)
                is_collapsed = scores[:, 1] < -depth / 2
                cells.append(Cell(float(is_named_collapsed(scores)[:, 1][is_collapsed].mean())))
            named[f"{100 * rate:.0f} % collapse, loss × {loss}"] = cells
    kinds: dict[str, Draw] = {
        "normal": normal(),
        "t with 3 degrees of freedom": heavy_tails,
        "a variant's sd × 4": normal((1, 4)),
        "lognormal": lambda generator, *shape: -np.exp(generator.normal(size=shape)),
        "bounded, near the bound": lambda generator, *shape: (
            20 * generator.beta(20, 0.5, size=shape)
        ),
    }
    healthy = {}
    for name, draw in kinds.items():
        cells = []
        for variants, seeds in designs:
            scores = draw(generator, studies, variants, seeds)
            cells.append(Cell(float(is_named_collapsed(scores).mean()), high=0.01))
        healthy[name] = cells
    named_text = "Collapsed runs of one variant that the rule names."
    healthy_text = (
        "Healthy runs that the rule names. The distributions are those of the negative log of the loss, in 20ths. "
        "Limit: 1."
    )
    return [
        Table("Collapsed runs that are named", named_text, columns, named),
        Table("Healthy runs that are named", healthy_text, columns, healthy),
        _directions_without_collapsed(generator, studies // 4),
    ]


def _directions_without_collapsed(generator: np.random.Generator, studies: int) -> Table:
    rows = {}
    for variants_with, variants in ((1, 2), (5, 6)):
        cells = []
        for seeds in (6, 12):
            scores = with_collapses(variants_with)(generator, studies, variants, seeds)
            scores[is_named_collapsed(scores)] = math.nan
            cells.append(Cell(float(any_direction(scores).mean()), high=MAX_WRONG))
        rows[f"{variants} variants, collapses in {variants_with}"] = cells
    text = (
        f"Studies, {studies:,} for each cell, in which 10 % of the runs of some variants collapse and the others have "
        "equal means, with a wrong direction without the runs that the rule names. Limit: 5.5."
    )
    return Table("Directions without collapsed runs", text, ["6 seeds", "12 seeds"], rows)


def best_tables(generator: np.random.Generator, studies: int) -> list[Table]:
    """Return wrong statements about the best of many variants."""
    rows = {}
    for variants, seeds, sd in ((6, 6, 1.0), (12, 6, 1.0), (12, 6, 4.0), (40, 6, 1.0)):
        excluded = []
        equivalent = []
        parts = list(in_parts(studies, 8 * variants * variants * seeds))
        for part in parts:
            scores = normal((sd,))(generator, part, variants, seeds)
            against = _against_others(scores, 0)
            excluded.append((against.mean < -against.half).any(axis=1).mean())
            scores[:, 0] += MARGIN
            wrong = np.zeros(part, dtype=bool)
            for variant in range(1, variants):
                against = _against_others(scores, variant)
                wrong |= (against.half - against.mean < MARGIN).all(axis=1)
            equivalent.append(wrong.mean())
        label = f"{variants} variants, {seeds} seeds"
        if sd != 1:
            label += f", sd of the best × {sd:g}"
        rows[label] = [
            Cell(mean_of_parts(excluded, parts), high=MAX_WRONG),
            Cell(mean_of_parts(equivalent, parts), high=MAX_WRONG),
        ]
    text = (
        "The best of many variants. First: all are equal, and the first one is called worse than another. Second: the "
        "first one is better than all others by the margin, and another is called equivalent to the best. Limit: 5.5."
    )
    columns = ["the best is called worse", "wrong equivalent"]
    return [Table("The best of many", text, columns, rows)]


def _against_others(scores: Floats, variant: int) -> Intervals:
    """Return the intervals of a variant minus each other variant, a family of their own."""
    variants = scores.shape[1]
    each = np.eye(variants)
    weights = each[variant] - np.delete(each, variant, axis=0)
    return moderated_intervals(scores, weights)


def combined_tables(generator: np.random.Generator, studies: int) -> list[Table]:
    """Return the coverage of the combined mean of settings, and of the interval of a new setting."""
    rows = {}
    seeds = 6
    for settings in (3, 5, 8):
        for between in (0.0, 0.5, 2.0):
            shape = (studies, settings, seeds)
            truth = between * generator.normal(size=(studies, settings, 1))
            new_truth = between * generator.normal(size=studies)
            covered = np.zeros(2)
            for differences, of_new in zip(
                truth + generator.normal(size=shape), new_truth, strict=True
            ):
                found = combine([paired_differences(of_setting) for of_setting in differences])
                covered[0] += found.interval.low <= 0 <= found.interval.high
                covered[1] += found.prediction.low <= of_new <= found.prediction.high
            mean, new = covered / studies
            label = f"{settings} settings of {seeds} seeds; sd between settings {between:g}"
            rows[label] = [Cell(float(mean), low=MIN_COVERAGE), Cell(float(new), low=MIN_COVERAGE)]
    text = (
        "Settings of one question, with a standard deviation of 1 of the difference of a seed. Intervals of the mean "
        "over settings that contain the true mean, and prediction intervals that contain the true difference of "
        "another setting. Limit: at least 94."
    )
    return [Table("Settings combined", text, ["mean", "another setting"], rows)]


def ledger_tables(generator: np.random.Generator, studies: int) -> list[Table]:
    """Return the errors of chains of changes."""
    rules = [Chains(6, 2.0), Chains(8, 2.0), Chains(16, 1.0), Chains(32, 1.0)]
    rules += [Chains(8, 2.0, noisy_sd=noisy_sd) for noisy_sd in (3.0, 10.0)]
    for effect in (2.0, 1.0):
        for seeds in (1, 2, 3):
            rules.append(Chains(seeds, effect, by_mean=True))
    rows = {}
    for chains in rules:
        rule = "better mean" if chains.by_mean else "ledger"
        noun = "seed" if chains.seeds == 1 else "seeds"
        label = f"{rule}, {chains.seeds} {noun}, improvements of {chains.effect:g} sd"
        if chains.noisy_sd != 1:
            label += f", sd × {chains.noisy_sd:g} in a fifth of the changes"
        high = 1.0 if chains.by_mean else MAX_WRONG
        rows[label] = _ledger_cells(generator, studies // 2, chains, high)
    drifts = {}
    for drift in (0.0, 0.5, 1.0):
        for is_measured_again in (True, False):
            chains = Chains(8, 2.0, drift=drift, is_measured_again=is_measured_again)
            side = "incumbent measured again" if is_measured_again else "stored scores"
            high = MAX_WRONG if is_measured_again else 1.0
            label = f"drift of {drift:g} sd; {side}"
            drifts[label] = _ledger_cells(generator, studies // 2, chains, high)
    columns = ["kept changes without effect", "chains that keep one", "improvements kept"]
    text = (
        f"{studies // 2:,} chains of 50 changes, of which 80 % have no effect. The incumbent is measured again in the "
        "session of each change. *Better mean* keeps a change if its mean is better. Limit of the first column: 5.5."
    )
    drift_text = (
        "The same with eight seeds and improvements of 2 sd, where all scores of a session shift by a random amount. "
        "Every change has a session. Limit of the first column, if the incumbent is measured again: 5.5."
    )
    return [
        Table("Chains of changes", text, columns, rows),
        Table("Drift between sessions", drift_text, columns, drifts),
    ]


def _ledger_cells(
    generator: np.random.Generator, number: int, chains: Chains, high: float
) -> list[Cell]:
    decisions = decide(generator, number, chains)
    is_wrong = decisions.kept & ~decisions.is_real
    kept = np.maximum(1, decisions.kept.sum(axis=1))
    return [
        Cell(float((is_wrong.sum(axis=1) / kept).mean()), high=high),
        Cell(float(is_wrong.any(axis=1).mean())),
        Cell(float(decisions.kept[decisions.is_real].mean())),
    ]


Part = Callable[[np.random.Generator, int], list[Table]]
"""Simulates a number of studies for each cell of its tables."""

PARTS: tuple[Part, ...] = (
    direction_tables,
    several_larger_tables,
    distribution_tables,
    whole_report_tables,
    power_tables,
    detectable_tables,
    margin_tables,
    detected_effect_tables,
    look_tables,
    saving_tables,
    passage_tables,
    sentence_tables,
    best_tables,
    collapse_tables,
    combined_tables,
    ledger_tables,
)

INTRODUCTION = """\
# Simulated studies

<!-- Generated by `python benchmarks/simulation.py --write docs/concepts/simulated-studies.md`; do not edit. -->

`benchmarks/simulation.py` draws {studies:,} studies for each cell, if a text does not state another number, and judges
them by the rules of [Statistics](statistics.md). All numbers are percentages. Unless a row says otherwise, scores are
normal with a standard deviation (sd) of 1 over seeds, and variants are compared with the first one. A rate of 5 % has
a standard error of {error:.2f} points. Cells outside their limit are in bold type.

The [last section](#tuned-learning-rates) has studies with tuned learning rates and limits of its own.
"""


def page(tables: Sequence[Table], studies: int) -> str:
    """Return the Markdown page of all tables, with the cells outside their limits and the section of tuned studies."""
    error = 100 * math.sqrt(0.05 * 0.95 / studies)
    parts = [INTRODUCTION.format(studies=studies, error=error)]
    parts.append("## Cells outside their limits\n")
    for table in tables:
        names = table.missed()
        if names:
            parts.append(f"**{table.title}**\n")
            parts.append("\n".join(f"- {name}" for name in names) + "\n")
    for table in tables:
        parts.append(table.markdown() + "\n")
    parts.append(section(read_results()))
    return "\n".join(parts)


def simulate(part: Part, studies: int) -> list[Table]:
    """Return the tables of a part; its random numbers do not depend on the other parts."""
    return part(np.random.default_rng([17, crc32(part.__name__.encode())]), studies)


def main() -> int:
    """Print the tables, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=20_000, help="studies of a cell")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the tables to this page")
    options = parser.parse_args()
    tables = []
    for part in PARTS:
        for table in simulate(part, options.studies):
            print(table.markdown(), end="\n\n", flush=True)
            tables.append(table)
    if options.write:
        options.write.write_text(page(tables, options.studies))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
