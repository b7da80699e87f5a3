"""The records of the run-directory format, as types; every reader and writer of them uses these.

``experiment.json`` is an `ExperimentRecord`, ``run.json`` a `RunRecord`, ``status.json`` a `StatusRecord` and
``results.json`` a `ResultsRecord`. ``stack.json`` is `headtohead.storage.stack.StackRecord`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, TypeAdapter, ValidationError

from headtohead import files
from headtohead.config.labels import Scalar
from headtohead.errors import HeadToHeadError
from headtohead.storage import states

EXPERIMENT = "experiment.json"
RUN = "run.json"
STATUS = "status.json"
RESULTS = "results.json"
HEADS = "heads.json"
METRICS = "metrics.jsonl"

R = TypeVar("R")

JsonObject = SkipValidation[Mapping[str, Any]]
"""A mapping that is kept as it was read; other code validates it where it is used."""

Versions = Mapping[str, str | None]
"""Versions of headtohead, Python and torch, commit and platform."""


class Record(BaseModel):
    """A JSON object of the format; unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain data."""
        return self.model_dump(mode="json")


class ParameterCounts(Record):
    """Numbers of weights of a variant."""

    total: int
    non_embedding: int
    attention: int


class PitfallRecord(Record):
    """A choice that makes a result mean less than it seems to."""

    name: str
    field: str
    consequence: str


class ResolvedVariant(Record):
    """What ``experiment.json`` and ``run.json`` both hold of a variant: configuration and costs.

    ``path`` is the attention path, fused or explicit, by role. ``d_ff_asked`` is the d_ff of the experiment file,
    which differs from ``d_ff`` where matching widened it. ``steps`` is 0 for imported checkpoints.
    """

    title: str
    axes: Mapping[str, Scalar]
    parameters: ParameterCounts
    flops_per_token: float
    inner_width: int
    d_ff: int
    d_ff_asked: int
    match: str
    path: Mapping[str, str]
    steps: int
    evaluate_every: int
    decoding_limit: int
    blind_to_order: bool
    pitfalls: tuple[PitfallRecord, ...]
    config: JsonObject


class VariantRecord(ResolvedVariant):
    """A variant of an experiment; ``equal_to`` is the slug of a variant that it equals by construction."""

    slug: str
    equal_to: str | None
    equal_reason: str | None


class ExcludedRecord(Record):
    """A combination of the design that does not run."""

    slug: str
    title: str
    axes: Mapping[str, Scalar]
    reason: str
    source: Literal["exclude", "undefined"]


Pairs = tuple[tuple[str, str], ...]
"""Slugs of the two sides of differences, left minus right."""


class VariantContrast(Record):
    """A variant against the baseline."""

    kind: Literal["variant"] = "variant"
    name: str
    variant: str
    baseline: str

    @property
    def pairs(self) -> Pairs:
        """The two variants."""
        return ((self.variant, self.baseline),)


class FactorContrast(Record):
    """One value of an axis against another, averaged over the other axes.

    ``given`` holds axes that the block holds at a value which is not the baseline's. ``pairs_missing`` is the
    number of pairs that are left out because one side does not run.
    """

    kind: Literal["factor"] = "factor"
    name: str
    axis: str
    value: Scalar
    against: Scalar
    given: Mapping[str, Scalar]
    pairs: Pairs
    pairs_missing: int


class ChoiceContrast(Record):
    """A choice of a path, or choices that are applied together: one pair of slugs per permutation."""

    kind: Literal["choice"] = "choice"
    name: str
    choices: tuple[str, ...]
    pairs: Pairs


ContrastRecord = Annotated[VariantContrast | FactorContrast | ChoiceContrast, Field(discriminator="kind")]
"""A difference that the report tests."""


class PathEnd(Record):
    """An end of a path."""

    slug: str
    name: str


class PathChoice(Record):
    """A difference between the ends of a path, and its values at both.

    ``alone`` is the slug of the start with this choice applied, ``without`` that of the end without it; None where
    that configuration is incompatible.
    """

    name: str
    fields: tuple[str, ...]
    before: Scalar
    after: Scalar
    alone: str | None
    without: str | None


class PathStep(Record):
    """Choices that are applied at once, and the slug of the variant that they lead to."""

    choices: tuple[str, ...]
    slug: str


class PathOrders(Record):
    """How the orders of a path were drawn: their number, those tried, and the blocked ones by reason."""

    possible: int
    tried: int
    blocked: Mapping[str, int]
    seed: int


class InseparableChoice(Record):
    """A choice that is incompatible by itself at an end of the path, and the choices that it needs."""

    choice: str
    end: str
    reason: str
    needs: tuple[str, ...]


class PathRecord(Record):
    """The path of a Shapley design."""

    start: PathEnd
    end: PathEnd
    choices: tuple[PathChoice, ...]
    walks: tuple[tuple[PathStep, ...], ...]
    orders: PathOrders
    apart: tuple[InseparableChoice, ...]


class TrialRecord(Record):
    """One setting of a sweep; ``mean`` is None where a run diverged."""

    values: Mapping[str, Any]
    mean: float | None
    sd: float | None


class TunedVariant(Record):
    """The setting that a sweep chose for a variant, and all settings that it tried."""

    chosen: Mapping[str, Any]
    at_the_edge: tuple[str, ...]
    tried: tuple[TrialRecord, ...]


class TuningRecord(Record):
    """The sweep of an experiment; ``variants`` is empty until every run of the sweep has a result."""

    experiment: str
    fields: tuple[str, ...]
    metric: str
    seeds: tuple[int, ...]
    variants: Mapping[str, TunedVariant]


class PublishedNumbers(Record):
    """What a source prints for a claim."""

    variant: float | None
    against: float | None
    where: str


class ClaimRecord(Record):
    """A published claim with its variants as slugs; ``against`` is None with ``expect: at-most``."""

    says: str
    variant: str
    against: str | None
    metric: str
    against_metric: str | None
    lengths: tuple[int, int] | None
    against_lengths: tuple[int, int] | None
    published: PublishedNumbers
    expect: Literal["higher", "lower", "equal", "at-most"]
    by: float
    margin: float | None
    limit: float | None


class PublishedRecord(Record):
    """The published results that an experiment tests."""

    source: str
    setup: Mapping[str, Any]
    differences: tuple[str, ...]
    claims: tuple[ClaimRecord, ...]


class ReportedMetrics(Record):
    """The metric of the answer, and those of the report's table."""

    primary: str
    report: tuple[str, ...]


class ProbeSentence(Record):
    """A sentence whose attention is recorded."""

    source: str
    target: str | None


class PlannedRunRecord(Record):
    """A run of an experiment; ``reused_from`` names the run of another experiment that has its result."""

    variant: str
    seed: int
    key: str
    directory: str
    reused_from: str | None = None


class ExperimentRecord(Record):
    """The plan of an experiment."""

    format: Literal[1] = 1
    name: str
    question: str
    description: str | None = None
    file: str | None = None
    text: str = ""
    command: str
    created: str
    axes: tuple[str, ...]
    baseline: str
    seeds: tuple[int, ...]
    variants: tuple[VariantRecord, ...]
    tuning: TuningRecord | None = None
    excluded: tuple[ExcludedRecord, ...] = ()
    contrasts: tuple[ContrastRecord, ...]
    path: PathRecord | None = None
    published: PublishedRecord | None = None
    match: str
    metrics: ReportedMetrics
    probes: tuple[ProbeSentence, ...]
    notes: tuple[str, ...]
    data: JsonObject
    runs: tuple[PlannedRunRecord, ...]
    versions: Versions

    @property
    def by_slug(self) -> dict[str, VariantRecord]:
        """The variants by slug, in the order of the design."""
        return {variant.slug: variant for variant in self.variants}


class PluginRecord(Record):
    """A plugin entry that a run uses."""

    family: str
    name: str
    module: str
    distribution: str
    version: str
    source_sha256: str


class ExecutionRecord(Record):
    """How a run is trained: run hashes of its stack, its index there, threads, device and precision."""

    stack: tuple[str, ...]
    member: int
    threads: int
    device: str | None
    dtype: str


class ImportedRecord(Record):
    """Where an imported checkpoint comes from; ``words`` are its vocabulary sizes by side."""

    file: str
    sha256: str
    form: str
    words: Mapping[str, int]
    positions: int | None


class RunRecord(ResolvedVariant):
    """What a run is; ``execution`` is None until its stack is laid out."""

    format: Literal[1] = 1
    key: str
    experiment: str
    variant: str
    seed: int
    plugins: tuple[PluginRecord, ...]
    data: JsonObject
    execution: ExecutionRecord | None = None
    recipe: str | None = None
    imported: ImportedRecord | None = None
    versions: Versions
    created: str

    @property
    def sources(self) -> dict[tuple[str, str], str]:
        """The source hash of each plugin entry, by family and name."""
        return {(one.family, one.name): one.source_sha256 for one in self.plugins}


class StatusRecord(Record):
    """The progress of a run; the default is that of a run without ``status.json``."""

    state: str = Field(states.PLANNED, pattern=f"^({'|'.join(sorted(states.STORED))})$")
    reason: str | None = None
    signature: str | None = None
    step: int = 0
    steps: int | None = None
    started: str | None = None
    ended: str | None = None
    attempt: int = 0
    host: str | None = None
    pid: int | None = None


class BackendRecord(Record):
    """How training steps were executed."""

    name: str
    why: str


class ResultsRecord(Record):
    """The final scores of a run."""

    metrics: Mapping[str, int | float | None]
    buckets: tuple[Mapping[str, Any], ...]
    signatures: Mapping[str, str]
    decoding: Mapping[str, Any] | None = None
    padding: Mapping[str, float] | None = None
    best_step: int | None
    stopped_early: bool
    backend: BackendRecord | None = None
    notes: tuple[str, ...]


class HeadMetrics(Record):
    """The part of ``heads.json`` that reports and tracking use."""

    model_config = ConfigDict(extra="ignore")

    metrics: Mapping[str, int | float | None]


def read_record(kind: type[R], path: Path, parse: Callable[[str], Any] = json.loads) -> R | None:
    """Return the record in a file; None if there is no such file.

    Args:
        kind: The type of the record.
        path: The file.
        parse: Parses its text.

    Raises:
        HeadToHeadError: If the file is not such a record; names the file and the first wrong field.
    """
    try:
        content = files.read_json(path, parse)
    except FileNotFoundError:
        return None
    try:
        record: R = _adapter(kind).validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise HeadToHeadError(
            f"cannot read '{path}': {f'{field}: ' if field else ''}{first['msg']}; restore it, or move its folder away"
        ) from error
    return record


def read_status(run: Path) -> StatusRecord:
    """Return the status of a run directory; a run without ``status.json`` is PLANNED.

    Raises:
        HeadToHeadError: If the file is damaged.
    """
    return read_record(StatusRecord, run / STATUS) or StatusRecord()


_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]
