"""``ExperimentFile``: the fields of an experiment file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from headtohead.errors import nearest
from headtohead.schema.roles import ROLES
from headtohead.schema.sections import Section


def _seeds(value: object) -> object:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole or isinstance(value, list):
        return value
    raise ValueError(f"expected a number of seeds, or a list of seeds, got {value!r}")


class Probe(Section):
    """A sentence whose attention is recorded in every run."""

    source: str = Field(description="sentence whose attention is recorded")
    target: str | None = Field(None, description="default: its reference in the corpus, else the run's own translation")


MEASURED = (
    *(f"valid/{name}" for name in ("loss", "perplexity", "token_accuracy")),
    *(f"test/{name}" for name in ("loss", "perplexity", "token_accuracy", "exact_match", "bleu")),
    *(f"test/{name}" for name in ("chrf", "loss_unpadded", "exact_match_unpadded")),
    "train/loss",
    *(f"attention/{role}/{name}" for role in ROLES for name in ("entropy", "distance")),
    "attention/fused_difference",
    *(f"system/{name}" for name in ("peak_memory_mb", "step_ms", "train_seconds")),
    *(f"system/{name}" for name in ("wall_seconds", "tokens_per_second")),
)
"""Every metric that a finished run has."""


def _known_metric(name: str) -> str:
    if name not in MEASURED:
        raise ValueError(f"unknown metric '{name}'{nearest(name, MEASURED)}")
    return name


Metric = Annotated[str, AfterValidator(_known_metric)]

HEAD_METRICS = tuple(
    f"heads/{role}/{kept}/{name}"
    for role in ROLES
    for kept in ("without-one", "only-one")
    for name in ("loss", "bleu", "exact_match")
)
"""Metrics that ``h2h heads`` adds to a finished run: what masking heads of a role changes."""


def _known_claim_metric(name: str) -> str:
    known = (*MEASURED, *HEAD_METRICS)
    if name not in known:
        raise ValueError(f"unknown metric '{name}'{nearest(name, known)}")
    return name


ClaimMetric = Annotated[str, AfterValidator(_known_claim_metric)]


class Metrics(Section):
    """What the answer speaks of, and what else the report shows."""

    primary: Metric = Field("test/exact_match", description="the metric the answer speaks of")
    report: tuple[Metric, ...] = Field(
        ("valid/loss", "test/bleu", "test/chrf"), description="further columns of the report"
    )


class Exclusion(Section):
    """Combinations of axis values that do not run, and why."""

    when: dict[str, Any] = Field(description="axis values that must all hold")
    reason: str = Field(description="shown in the plan and the report")


class PathDesign(Section):
    """Two configurations, walked from one to the other, one difference at a time."""

    start: str | dict[str, Any] = Field(
        alias="from", description="recipe/NAME, or a mapping as `base`; `base` is laid over it"
    )
    end: str | dict[str, Any] = Field(alias="to", description="the other end, likewise")
    orders: int = Field(8, ge=8, description="orders that are walked; all, where there are fewer")
    orders_seed: int = Field(1, ge=1, description="seed of the draw of orders, not of the runs")
    together: dict[str, list[str]] = Field(
        default_factory=dict, description="fields that change as one choice, by its name"
    )


class DesignBlock(Section):
    """One block of a design; exactly one of its fields is set."""

    product: dict[str, list[Any]] | None = Field(None, description="every combination of values")
    one_at_a_time: dict[str, list[Any]] | None = Field(None, description="each value alone, the baseline included")
    zip: dict[str, list[Any]] | None = Field(None, description="values side by side")
    path: PathDesign | None = Field(None, description="one difference at a time between two recipes; stands alone")


class PublishedValues(Section):
    """What a source prints for a claim."""

    variant: float | None = Field(None, description="the value that the source prints for `variant`")
    against: float | None = Field(None, description="the value that it prints for `against`")
    where: str = Field(description="metric, data and place: BLEU on newstest2013, table 3")


class Claim(Section):
    """One published result, and what would agree with it."""

    says: str = Field(description="the claim in one sentence")
    variant: dict[str, Any] = Field(
        description="axis values of the variant that it speaks of; the rest is as in the baseline"
    )
    against: dict[str, Any] | None = Field(
        None, description="the variant that it is compared with, likewise; default: the baseline"
    )
    metric: ClaimMetric | None = Field(
        None, description="metric of our runs, also those of `h2h heads`; default: metrics.primary"
    )
    against_metric: ClaimMetric | None = Field(
        None, description="metric of `against`, where it is another; default: metric"
    )
    lengths: tuple[int, int] | None = Field(
        None,
        description="only test sources of so many tokens, from and to: whole evaluate.buckets; for "
        "test/exact_match, test/bleu and test/loss",
    )
    against_lengths: tuple[int, int] | None = Field(None, description="likewise for `against`; default: lengths")
    published: PublishedValues = Field(description="what the source prints")
    expect: Literal["higher", "lower", "equal", "at-most"] = Field(
        description="of variant − against: higher or lower than 0, or equal within the margin; "
        "at-most: no run of the variant passes the limit"
    )
    by: float = Field(0.0, ge=0, description="with higher and lower: smallest difference that counts as such")
    margin: float | None = Field(None, gt=0, description="with equal: largest difference that counts as none")
    limit: float | None = Field(None, description="with at-most: what no run may pass")


class Published(Section):
    """Published results that the experiment's own are held against; no part of a run's key."""

    source: str = Field(description="authors, year, title, arXiv number, table")
    setup: dict[str, Any] = Field(
        default_factory=dict,
        description="the source's set-up: fields such as model.d_model, and data, test, pairs, "
        "vocabulary, parameters, steps, seeds, decoding; differences from ours are printed",
    )
    differences: tuple[str, ...] = Field((), description="further differences of set-up, one sentence each")
    claims: list[Claim] = Field(min_length=1, description="what is held against our runs")


class ExperimentFile(Section):
    """An experiment file, as written: sugar not yet expanded."""

    question: str = Field(description="the question, as a reader would ask it")
    description: str | None = Field(None, description="Markdown for the report and MLflow")
    base: dict[str, Any] = Field(default_factory=dict, description="what every variant shares")
    baseline: dict[str, Any] = Field(default_factory=dict, description="the variant to compare with, laid over base")
    design: list[DesignBlock] = Field(default_factory=list, description="what varies")
    exclude: list[Exclusion] = Field(default_factory=list, description="combinations left out")
    seeds: Annotated[int | list[int], BeforeValidator(_seeds)] = Field(
        6, description="replicates: a number n (seeds 1 to n), or a list"
    )
    tune: dict[str, list[Any]] | None = Field(
        None,
        description="the same small sweep for every variant, before the experiment: values by "
        "field, such as train.lr; each variant gets the one of lowest validation loss",
    )
    tune_seeds: int = Field(2, ge=1, description="replicates of the sweep, with seeds that no experiment can use")
    match: Literal["none", "parameters", "flops"] = Field(
        "none", description="widen d_ff of smaller variants until they match the largest, to 1 %"
    )
    metrics: Metrics = Field(Metrics(), description="what the answer speaks of")
    probes: list[str | Probe] | None = Field(
        None, description="sentences for attention maps; default: two of the test set"
    )
    published: Published | None = Field(None, description="published results that the report holds against ours")
