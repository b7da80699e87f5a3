"""``ExperimentFile``: the fields of an experiment file."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from headtohead.schema.run_config import Length
from headtohead.schema.sections import ConfigSection

MAX_SEED = 1_000_000
"""Largest seed of an experiment; tuning runs use larger seeds."""

AUTO_FACTORS = (0.25, 0.5, 1.0, 2.0)
"""Multiples of the value of base that ``tune`` tries with ``auto``; a parabola needs four of them."""

MAX_SCORE = 10**9

Seed = Annotated[int, Field(ge=1, le=MAX_SEED)]


def _distinct(seeds: list[int]) -> list[int]:
    seed, number = Counter(seeds).most_common(1)[0]
    if number > 1:
        raise ValueError(f"duplicate seed {seed}; each seed is one replicate")
    return seeds


Score = Annotated[float, Field(ge=-MAX_SCORE, le=MAX_SCORE)]


class SequentialSeeds(ConfigSection):
    """Seeds that are added until every main contrast has a direction or is equivalent."""

    until: Literal["decided"]
    """when to stop: decided, at the first look at which every main contrast is better, worse or equivalent"""

    at_most: int = Field(ge=3, le=1000)
    """number of seeds of the last look"""

    looks: int = Field(4, ge=1, le=50)
    """number of times that the study is judged, at equal intervals up to at_most seeds"""


class Probe(ConfigSection):
    """A sentence, or the beginning of a text without sources, for which every run records its attention maps."""

    source: str
    """source sentence"""

    target: str | None = None
    """target sentence; default: the reference in the corpus, else the run's translation"""


class Metrics(ConfigSection):
    """The metric that answers the question, and further metrics of the report."""

    primary: str | None = None
    """metric that answers the question; default: test/exact_match, or the dataset's first metric"""

    report: tuple[str, ...] | None = None
    """further metrics in the tables of the report; default: valid/loss and the other metrics of the dataset"""


def _one_line(name: str) -> str:
    if name != name.strip() or not name.isprintable():
        raise ValueError("expected a name in one line, without spaces around it")
    return name


Name = Annotated[str, Field(min_length=1, max_length=60), AfterValidator(_one_line)]
"""What people call a value or a configuration."""

Margin = Annotated[float, Field(gt=0, le=MAX_SCORE)]


class ExclusionRule(ConfigSection):
    """A combination of axis values that does not run."""

    when: dict[str, Any]
    """axis values that an excluded variant has"""

    reason: str
    """reason, printed in plan and report"""


class Expectation(ConfigSection):
    """A published or predicted result of a contrast; the report states whether the experiment agrees with it."""

    direction: Literal["higher", "lower", "equal"]
    """variant − against is higher or lower than 0, or equal within `by`"""

    by: float = Field(0.0, ge=0, le=MAX_SCORE)
    """with higher and lower: smallest difference that agrees; with equal: largest. Set it before the first run"""

    published: Score | None = None
    """published variant − against, if it has the unit of the contrast's metric"""

    source: str
    """where the result is published, such as authors, year and table; why this size"""


class ContrastDeclaration(ConfigSection):
    """Two variants of the design that are compared; other axes are as in the baseline."""

    variant: dict[str, Any]
    """axis values of the variant"""

    against: dict[str, Any] | None = None
    """axis values of the variant that it is compared with; default: the baseline"""

    name: str | None = Field(None, min_length=1, max_length=200)
    """name in the report; default: the clause for the change, or both titles if metrics or lengths differ"""

    metric: str | None = None
    """metric, including those of `h2h ablate-heads`; default: metrics.primary"""

    against_metric: str | None = None
    """metric of `against`; default: metric"""

    lengths: tuple[Length, Length] | None = None
    """minimum and maximum tokens of the test sources that count, at bounds of evaluate.buckets; for test/exact_match,
    test/bleu and test/loss"""

    against_lengths: tuple[Length, Length] | None = None
    """the same for `against`; default: lengths"""

    expect: Expectation | None = None
    """published or predicted result that the contrast tests"""


class BetweenDesign(ConfigSection):
    """Two configurations; each difference is added to the first and taken from the second."""

    start: dict[str, Any] = Field(alias="from")
    """a mapping like `base`; `base` is merged over it"""

    end: dict[str, Any] = Field(alias="to")
    """the other configuration, in the same notation"""

    groups: dict[str, list[str]] = Field(default_factory=dict)
    """groups of fields that change together, by name of the group"""


ZIP = "zip"
"""Field of a product, or of one_at_a_time: its axes change together."""


class DesignBlock(ConfigSection):
    """A block of a design with exactly one field."""

    product: dict[str, list[Any] | dict[str, list[Any]]] | None = None
    """all combinations of the values; `zip` inside it combines axes that change together"""

    one_at_a_time: dict[str, list[Any] | dict[str, list[Any]]] | None = None
    """the baseline, and the baseline with one value changed; `zip` inside it as in a product"""

    zip: dict[str, list[Any]] | None = None
    """the first values together, the second values together, …"""

    between: BetweenDesign | None = None
    """two configurations, and every single change between them; the only block of its design"""


class ExperimentFile(ConfigSection):
    """The fields of an experiment file as written."""

    question: str
    """the question in one sentence"""

    description: str | None = None
    """Markdown text for the report and MLflow"""

    plugins: tuple[str, ...] = ()
    """plugins to load: Python files and folders, relative to this file, and import names of installed modules"""

    base: dict[str, Any] = Field(default_factory=dict)
    """configuration of all variants"""

    baseline: dict[str, Any] = Field(default_factory=dict)
    """variant that others are compared with, merged over base"""

    design: list[DesignBlock] = Field(default_factory=list)
    """axes and their values"""

    sizes: Annotated[list[dict[str, Any]], Field(min_length=2, max_length=100)] | None = None
    """sizes, small to large, at which the whole design is trained; each sets the same fields, such as {model.d_model:
    64, train.steps: 2000}. Variants are compared with the baseline of their size"""

    names: dict[str, Name | dict[str, Name]] = Field(default_factory=dict)
    """what tables and sentences call values, by axis and value, such as {positional: {rotary: RoPE}}: a noun phrase, or
    one that starts with "with" or "without". With `between`, also the two configurations: {from: GPT-2, to: LLaMA}"""

    exclude: list[ExclusionRule] = Field(default_factory=list)
    """combinations that do not run"""

    contrasts: list[ContrastDeclaration] = Field(default_factory=list, max_length=1000)
    """differences that the experiment tests; the answer is about them"""

    seeds: (
        Seed
        | Annotated[list[Seed], Field(min_length=1), AfterValidator(_distinct)]
        | SequentialSeeds
    ) = 6
    """number of replicates n (seeds 1 to n), a list of seeds, or a mapping that adds seeds"""

    tune: dict[str, list[Any] | Literal["auto"]] | None = None
    """values by field, such as train.lr, or auto: 1/4, 1/2, 1 and 2 times the value of base. Before the experiment
    every variant is trained with each combination. With four values above 0 of one field and two seeds, the variant
    has the minimum of a parabola in the logarithm of the value, if that fits. Otherwise the two best settings get four
    more seeds, and the best mean is chosen. A best value at the edge or outside gets a further value beyond it, up to
    three times"""

    tune_seeds: int = Field(2, ge=1, le=1000)
    """seeds of the tuning runs, which no experiment can use; with one, intervals leave out the choice"""

    tune_epochs: float | None = Field(None, gt=0, le=10**6)
    """epochs of the tuning runs, for a cheaper sweep, which can choose other values; default: as many as the
    experiment"""

    match: Literal["none", "parameters", "flops", "baseline-parameters", "baseline-flops"] = "none"
    """widen d_ff of smaller variants until they match the largest within 1 %; with baseline-, widen or narrow d_ff
    until they match the baseline"""

    metrics: Metrics = Metrics()
    """metrics of answer and report"""

    margin: Margin | dict[str, Margin] | None = None
    """smallest difference that matters in metrics.primary, or a mapping by metric; smaller differences are tested for
    equivalence. Set it before the first run"""

    probes: list[str | Probe] | None = None
    """sentences for attention maps; default: two of the test part"""
