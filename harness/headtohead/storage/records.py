"""Types of the records of the run-directory format, used by all readers and writers.

``experiment.json`` is an `ExperimentRecord`, ``run.json`` a `RunRecord`, ``status.json`` a `StatusRecord` and
``results.json`` a `ResultsRecord`. ``stack.json`` is `headtohead.storage.stack.StackRecord`.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SkipValidation, TypeAdapter, ValidationError

from headtohead import files
from headtohead.config.labels import Scalar
from headtohead.errors import HeadToHeadError
from headtohead.storage import states
from headtohead.storage.metrics import RANGES, in_range, span

EXPERIMENT = "experiment.json"
RUN = "run.json"
STATUS = "status.json"
RESULTS = "results.json"
HEADS = "heads.json"
METRICS = "metrics.jsonl"
CHECKPOINT = "checkpoint.safetensors"
VOCABULARY = "vocabulary.json"
TRANSLATIONS = "translations.tsv"
MAPS = "attention/maps.safetensors"
PROBES = "attention/probes.json"

RESULT_FILES = (RESULTS, CHECKPOINT, VOCABULARY, TRANSLATIONS, MAPS, PROBES, HEADS)
"""Files with the results of a run; ``status.json`` has the sha256 of each."""

R = TypeVar("R")

JsonObject = SkipValidation[Mapping[str, Any]]
"""A mapping that is not validated here but where it is used."""

Versions = Mapping[str, str | None]
"""Versions of headtohead, Python and torch, commit and platform."""


class Record(BaseModel):
    """A JSON object of the format; unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain data."""
        return self.model_dump(mode="json")


class ParameterCounts(Record):
    """Numbers of parameters of a variant."""

    total: int
    non_embedding: int
    attention: int


class PitfallRecord(Record):
    """A setting that makes a result less meaningful than it appears."""

    name: str
    field: str
    consequence: str


class ResolvedVariant(Record):
    """Configuration and costs of a variant, part of both ``experiment.json`` and ``run.json``.

    ``path`` is the attention path, fused or explicit, by role. ``d_ff_asked`` is the d_ff of the experiment file,
    which differs from ``d_ff`` if matching has widened it.
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
    order_invariant: bool
    pitfalls: tuple[PitfallRecord, ...]
    config: JsonObject


class VariantRecord(ResolvedVariant):
    """A variant of an experiment; ``equal_to`` is the slug of a variant that it equals by construction."""

    slug: str
    equal_to: str | None
    equal_reason: str | None


class ExcludedRecord(Record):
    """An excluded combination of the design."""

    slug: str
    title: str
    axes: Mapping[str, Scalar]
    reason: str
    source: Literal["exclude", "incompatible"]


Pairs = tuple[tuple[str, str], ...]
"""Pairs of slugs; a difference is left minus right."""


class VariantContrast(Record):
    """A contrast of a variant with the baseline."""

    kind: Literal["variant"] = "variant"
    name: str
    variant: str
    baseline: str

    @property
    def pairs(self) -> Pairs:
        """The pair of variant and baseline."""
        return ((self.variant, self.baseline),)


class FactorContrast(Record):
    """A contrast of two values of an axis, averaged over the other axes.

    ``given`` holds the axes that the design block fixes at a value other than the baseline's. ``pairs_missing`` is
    the number of pairs that are omitted because a side is excluded.
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
    """A contrast of a choice, or of inseparable choices, of a Shapley path: a pair of slugs per permutation."""

    kind: Literal["choice"] = "choice"
    name: str
    choices: tuple[str, ...]
    pairs: Pairs


ContrastRecord = Annotated[VariantContrast | FactorContrast | ChoiceContrast, Field(discriminator="kind")]
"""A difference that is tested."""


class PathEnd(Record):
    """The start or the end of a Shapley path."""

    slug: str
    name: str


class PathChoice(Record):
    """A difference between start and end of a Shapley path, and its values at both.

    ``alone`` is the slug of the start with only this choice applied, ``without`` that of the end without it; None if
    that configuration is incompatible.
    """

    name: str
    fields: tuple[str, ...]
    before: Scalar
    after: Scalar
    alone: str | None
    without: str | None


class PathStep(Record):
    """Choices that are applied together, and the slug of the resulting variant."""

    choices: tuple[str, ...]
    slug: str


class PathOrders(Record):
    """How permutations were sampled: the possible number, the number tried, and blocked permutations by reason."""

    possible: int
    tried: int
    blocked: Mapping[str, int]
    seed: int


class InseparableChoice(Record):
    """A choice that is incompatible by itself at an end of the path, and the choices that it requires."""

    choice: str
    end: str
    reason: str
    needs: tuple[str, ...]


class PathRecord(Record):
    """The path of a Shapley design."""

    start: PathEnd
    end: PathEnd
    choices: tuple[PathChoice, ...]
    permutations: tuple[tuple[PathStep, ...], ...]
    orders: PathOrders
    inseparable: tuple[InseparableChoice, ...]


class TrialRecord(Record):
    """A setting of a sweep; ``mean`` is None if a run diverged."""

    values: Mapping[str, Any]
    mean: float | None
    sd: float | None


class TunedVariant(Record):
    """The setting that a sweep chose for a variant, and all tried settings."""

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
    """The numbers that a publication reports for a claim."""

    variant: float | None
    against: float | None
    where: str


class ClaimRecord(Record):
    """A published claim with the slugs of its variants; ``against`` is None with ``expect: at-most``."""

    statement: str
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
    """The primary metric, and the metrics of the report's table."""

    primary: str
    report: tuple[str, ...]


class ProbeSentence(Record):
    """A sentence for which attention maps are recorded."""

    source: str
    target: str | None


class PlannedRunRecord(Record):
    """A run of an experiment; ``reused_from`` is the path of another experiment's run with the same result."""

    variant: str
    seed: int
    run_hash: str
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
    """How a run is trained: the run hashes of its stack, its member index, threads, device and precision."""

    stack: tuple[str, ...]
    member: int
    threads: int
    device: str | None
    dtype: str


class ImportedRecord(Record):
    """The origin of an imported checkpoint; ``words`` are its vocabulary sizes by side."""

    file: str
    sha256: str
    form: str
    words: Mapping[str, int]
    positions: int | None


class RunRecord(ResolvedVariant):
    """Identity, configuration and origin of a run; ``execution`` is None until its stack is laid out."""

    format: Literal[1] = 1
    run_hash: str
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
        return {(plugin.family, plugin.name): plugin.source_sha256 for plugin in self.plugins}


FileName = Annotated[str, Field(pattern=f"^({'|'.join(map(re.escape, RESULT_FILES))})$")]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class StatusRecord(Record):
    """State and progress of a run; the defaults hold for a run without ``status.json``.

    ``files`` has the sha256 of every result file of a DONE run, by name.
    """

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
    files: Mapping[FileName, Sha256] = Field(default_factory=dict)


class BackendRecord(Record):
    """How training steps were executed."""

    name: str
    why: str


def _valid_metrics(metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metrics; raise ValueError if a value is not a number in the range of its metric."""
    for name, value in metrics.items():
        if not in_range(name, value):
            low, high = span(name)
            expected = "a number" if math.isinf(low) else f"a number from {low:g} to {high:g}"
            raise ValueError(f"{name} is {str(value)[:40]!r}, expected {expected}")
    return metrics


def _valid_bucket(bucket: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the bucket; raise ValueError if a count or a score is invalid."""
    for name, length in COUNTS.items():
        value = bucket.get(name)
        counts = value if length > 1 and isinstance(value, list) else [value]
        if value is not None and (len(counts) != length or not all(map(_is_count, counts))):
            raise ValueError(f"{name} is {str(value)[:40]!r}, expected {'counts' if length > 1 else 'a count'}")
    _valid_metrics({name: value for name, value in bucket.items() if name in RANGES})
    return bucket


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


COUNTS = {"low": 1, "high": 1, "n": 1, "target_tokens": 1, "bleu_counts": 10}
"""Fields of a bucket that are counts, and how many they hold."""

Metrics = Annotated[Mapping[str, SkipValidation[int | float | None]], AfterValidator(_valid_metrics)]
"""Metrics by name, each within its range."""

Bucket = Annotated[Mapping[str, Any], AfterValidator(_valid_bucket)]
"""Scores of the test sentences with a source length from ``low`` to ``high``."""


class ResultsRecord(Record):
    """The final scores of a run."""

    metrics: Metrics
    buckets: tuple[Bucket, ...]
    signatures: Mapping[str, str]
    decoding: Mapping[str, Any] | None = None
    padding: Mapping[str, float] | None = None
    best_step: int | None
    stopped_early: bool
    backend: BackendRecord | None = None
    notes: tuple[str, ...]


class HeadMetrics(Record):
    """The part of ``heads.json`` used by reports and tracking."""

    model_config = ConfigDict(extra="ignore")

    metrics: Metrics


def read_record(kind: type[R], path: Path, parse: Callable[[str], Any] = json.loads) -> R | None:
    """Read a record from a JSON file; return None if there is no such file.

    Args:
        kind: The type of the record.
        path: The file.
        parse: Parses the text of the file.

    Raises:
        HeadToHeadError: If the content is invalid; names the file and the first invalid field.
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
        problem = first["msg"].removeprefix("Value error, ")
        raise HeadToHeadError(
            f"cannot read '{path}': {f'{field}: ' if field else ''}{problem}; restore it, or move its folder away"
        ) from error
    return record


def read_status(run: Path) -> StatusRecord:
    """Return the status of a run directory; a run without ``status.json`` is PLANNED.

    A DONE run without one of its result files is INTERRUPTED, so that the same command retrains it. ``heads.json`` is
    not a result of training.

    Raises:
        HeadToHeadError: If ``status.json`` is damaged.
    """
    status = stored_status(run)
    missing = next((name for name in status.files if name != HEADS and not os.path.isfile(run / name)), None)
    if missing is None:
        return status
    return status.model_copy(update={"state": states.INTERRUPTED, "reason": f"{missing} is missing", "files": {}})


def stored_status(run: Path) -> StatusRecord:
    """Return the content of ``status.json``, whether or not the result files exist.

    Raises:
        HeadToHeadError: If the file is damaged.
    """
    return read_record(StatusRecord, run / STATUS) or StatusRecord()


_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]
