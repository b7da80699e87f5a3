"""Types of the records of the run-directory format, used by all readers and writers.

``experiment.json`` is an `ExperimentRecord`, ``run.json`` a `RunRecord`, ``status.json`` a `StatusRecord`,
``results.json`` a `ResultsRecord`, ``heads.json`` a `HeadsRecord`, ``vocabulary.json`` a `VocabularyRecord` and
``reference_points.json`` a `ReferencePointsRecord`. ``stack.json`` is `headtohead.storage.stack.StackRecord`,
``probes.json`` a list of `headtohead.storage.attention_maps.ProbeRecord`.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SkipValidation,
    StrictBool,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from typing_extensions import TypedDict

from headtohead import files
from headtohead.config.labels import Scalar
from headtohead.config.source_location import dotted, shown
from headtohead.config.validation_errors import format_validation_error
from headtohead.errors import HeadToHeadError
from headtohead.schema.roles import Role
from headtohead.schema.run_config import RunConfig
from headtohead.storage import states
from headtohead.storage.metrics import in_range, span

EXPERIMENT = "experiment.json"
REFERENCE_POINTS = "reference_points.json"
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
"""Files with the results of a run. Every attempt writes them anew."""

RUN_FILES = (RUN, METRICS, *RESULT_FILES)
"""Files that a finished run consists of; ``status.json`` has the sha256 of each, and of its files in ``attempts/``."""

EARLIER_ATTEMPT = r"attempts/[0-9]+\.(metrics\.jsonl|json)"
"""Pattern of the files of an earlier attempt: its status, and its histories if the next attempt began at step 0."""

R = TypeVar("R")

Count = Annotated[int, Field(strict=True, ge=0, lt=2**53)]
"""A whole number that a float represents exactly."""

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""A finite number."""

NonNegative = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]

Fraction = Annotated[float, Field(strict=True, ge=0, le=1)]

MetricName = Annotated[str, Field(pattern="^(train|valid|test|attention|system)/")]

TargetName = Annotated[str, Field(pattern="^valid/")]

HeadMetricName = Annotated[str, Field(pattern="^heads/")]

Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32)]

MAX_TOKENS = 100_000
"""Maximum value of ``decoding_limit``."""


def _axis_value(value: Scalar) -> Scalar:
    if isinstance(value, int | float) and not abs(value) < 2**63:
        raise ValueError("expected text, true, false, null or a finite number below 2**63")
    return value


AxisValue = Annotated[Scalar, AfterValidator(_axis_value)]
"""The value of an axis."""


def _date(text: str) -> str:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or not 1971 <= moment.year <= 9998:
        raise ValueError("expected a date from 1971 to 9998 with a time zone")
    return text


Date = Annotated[str, AfterValidator(_date)]
"""A date in ISO 8601 format with a time zone."""


def _config(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a configuration with the defaults of the fields that the file lacks."""
    try:
        return RunConfig.model_validate(value).model_dump(mode="json")
    except ValidationError as error:
        field, message = format_validation_error(error, RunConfig, value)
        raise ValueError(f"{dotted(field)}: {message}" if field else message) from error


Config = Annotated[SkipValidation[Mapping[str, Any]], AfterValidator(_config)]
"""A complete configuration without its seed, as plain data."""


Size = Annotated[int, Field(strict=True, ge=0, lt=2**31)]


class Sides(TypedDict):
    """A size per side."""

    source: Size
    target: Size


class DataRecord(TypedDict):
    """The description of a corpus; an imported checkpoint has only a part of it."""

    dataset: str
    data_hash: str
    licence: str | None
    citation: str | None
    languages: list[str]
    split: str
    normalise: str
    tokens: str
    counts: dict[str, Count]
    dropped: NotRequired[dict[str, Count]]
    dropped_words: NotRequired[dict[str, Count]]
    vocabulary: Sides
    longest: NotRequired[Sides]
    longest_in_train: NotRequired[Count]
    leak: NotRequired[Fraction]
    leaky: NotRequired[StrictBool]
    bag_of_words_upper_bound: NotRequired[Fraction | None]
    vocabulary_upper_bound: NotRequired[Fraction]
    unk_rate: NotRequired[dict[str, dict[str, Fraction]]]
    notes: list[str]


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

    total: Count
    non_embedding: Count
    attention: Count


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
    axes: Mapping[str, AxisValue]
    parameters: ParameterCounts
    flops_per_token: NonNegative
    inner_width: Count
    d_ff: Count
    d_ff_asked: Count
    match: str
    path: Mapping[Role, str]
    steps: Count
    evaluate_every: Count
    decoding_limit: Annotated[int, Field(strict=True, ge=0, le=MAX_TOKENS)]
    order_invariant: StrictBool
    padding_hidden: StrictBool = False
    pitfalls: tuple[PitfallRecord, ...]
    config: Config


class VariantRecord(ResolvedVariant):
    """A variant of an experiment; ``equal_to`` is the slug of a variant that it equals by construction."""

    slug: str
    equal_to: str | None
    equal_reason: str | None


class ExcludedRecord(Record):
    """An excluded combination of the design."""

    slug: str
    title: str
    axes: Mapping[str, AxisValue]
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
    value: AxisValue
    against: AxisValue
    given: Mapping[str, AxisValue]
    pairs: Pairs
    pairs_missing: Count


class InteractionContrast(Record):
    """Whether the effect of an axis depends on another axis: a difference of differences.

    The effect of ``value`` against ``against`` where ``other_axis`` is ``other_value``, minus that where it is
    ``other_against``, averaged over the remaining axes. ``pairs`` holds two pairs per setting of the remaining axes:
    the first difference, and the second with its sides swapped, so that the contrast is their sum.
    """

    kind: Literal["interaction"] = "interaction"
    name: str
    axis: str
    value: AxisValue
    against: AxisValue
    other_axis: str
    other_value: AxisValue
    other_against: AxisValue
    pairs: Pairs


class DeclaredContrast(Record):
    """A contrast of two variants that the experiment file declares."""

    kind: Literal["declared"] = "declared"
    name: str
    variant: str
    against: str

    @property
    def pairs(self) -> Pairs:
        """The pair of variants."""
        return ((self.variant, self.against),)


class ChangeContrast(Record):
    """A single change between two configurations, added to the first or taken from the second.

    ``variant`` has the change and ``against`` does not; they are equal in everything else.
    """

    kind: Literal["added", "taken"]
    name: str
    change: str
    variant: str
    against: str

    @property
    def pairs(self) -> Pairs:
        """The pair of variants."""
        return ((self.variant, self.against),)


ContrastRecord = Annotated[
    VariantContrast | FactorContrast | InteractionContrast | DeclaredContrast | ChangeContrast,
    Field(discriminator="kind"),
]
"""A difference that is tested."""


class TrialRecord(Record):
    """A setting of a sweep; ``mean`` is None if a run diverged."""

    values: Mapping[str, JsonValue]
    mean: Number | None
    sd: Number | None


class TunedVariant(Record):
    """The setting that a sweep chose for a variant, and all tried settings."""

    chosen: Mapping[str, JsonValue]
    at_the_edge: tuple[str, ...]
    tried: tuple[TrialRecord, ...]


class TuningRecord(Record):
    """The sweep of an experiment; ``variants`` is empty until every run of the sweep has a result."""

    experiment: str
    fields: tuple[str, ...]
    metric: MetricName
    seeds: tuple[Seed, ...]
    variants: Mapping[str, TunedVariant]
    epochs: Number | None = None


class PublishedNumbers(Record):
    """The numbers that a publication reports for a claim."""

    variant: Number | None
    against: Number | None
    where: str
    comparable: StrictBool = True


class ClaimRecord(Record):
    """A published claim with the slugs of its variants; ``against`` is None with ``expect: at-most``."""

    statement: str
    variant: str
    against: str | None
    metric: MetricName | HeadMetricName
    against_metric: MetricName | HeadMetricName | None
    lengths: tuple[Count, Count] | None
    against_lengths: tuple[Count, Count] | None
    published: PublishedNumbers
    expect: Literal["higher", "lower", "equal", "at-most"]
    by: Number
    margin: Number | None
    limit: Number | None
    justification: str | None = None


class PublishedRecord(Record):
    """The published results that an experiment tests."""

    source: str
    setup: Mapping[str, JsonValue]
    differences: tuple[str, ...]
    claims: tuple[ClaimRecord, ...]


class ReportedMetrics(Record):
    """The primary metric, the metrics of the report's table, and the targets of validation metrics."""

    primary: MetricName
    report: tuple[MetricName, ...]
    target: Mapping[TargetName, Number | Literal["baseline"]] = {}


class MarginRecord(Record):
    """The smallest difference that matters in a metric.

    ``since`` is when the experiment first had this value. ``late``: a result of the experiment with the same seeds and
    data existed then.
    """

    value: Annotated[Number, Field(gt=0)]
    since: Date
    late: bool = False


LookSeeds = Annotated[int, Field(strict=True, ge=2, le=1000)]
"""A number of seeds at which a study is judged."""


class LooksRecord(Record):
    """The numbers of seeds at which the study is judged; ``since`` is when it first had these looks.

    ``seeds`` is empty if the number of seeds is fixed and was not fixed before. ``taken`` are the looks so far, the
    current look last.
    """

    seeds: tuple[LookSeeds, ...]
    taken: tuple[LookSeeds, ...]
    since: Date

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if list(self.seeds) != sorted(set(self.seeds)):
            raise ValueError(f"seeds: expected ascending numbers, got {shown(self.seeds)}")
        return self


class ProbeSentence(Record):
    """A sentence for which attention maps are recorded."""

    source: str
    target: str | None


class PlannedRunRecord(Record):
    """A run of an experiment; ``reused_from`` is the path of another experiment's run with the same result."""

    variant: str
    seed: Seed
    run_hash: str
    directory: str
    reused_from: str | None = None


class EntryRecord(Record):
    """A plugin entry of a role in which variants differ; ``summary`` is the first line of its docstring."""

    family: str
    name: str
    summary: str


class ExperimentRecord(Record):
    """The plan of an experiment."""

    format: Literal[1] = 1
    name: str
    question: str
    description: str | None = None
    file: str | None = None
    text: str = ""
    command: str
    created: Date
    axes: tuple[str, ...]
    baseline: str
    seeds: tuple[Seed, ...]
    variants: tuple[VariantRecord, ...]
    tuning: TuningRecord | None = None
    excluded: tuple[ExcludedRecord, ...] = ()
    contrasts: tuple[ContrastRecord, ...]
    published: PublishedRecord | None = None
    match: str
    entries: tuple[EntryRecord, ...] = ()
    metrics: ReportedMetrics
    margins: Mapping[MetricName, MarginRecord] = {}
    looks: LooksRecord | None = None
    probes: tuple[ProbeSentence, ...]
    notes: tuple[str, ...]
    data: DataRecord
    runs: tuple[PlannedRunRecord, ...]
    versions: Versions

    @model_validator(mode="after")
    def _references(self) -> Self:
        """Check that every slug is that of a variant, and that no variant and no run is listed twice."""
        known = Counter(variant.slug for variant in self.variants)
        for field, slug in self._slugs():
            if slug not in known:
                raise ValueError(f"{field}: {shown(slug)} is the slug of no variant")
        listed: dict[str, Counter[Any]] = {
            "variants": known,
            "runs": Counter((run.variant, run.seed) for run in self.runs),
        }
        for field, counts in listed.items():
            twice = next((name for name, count in counts.items() if count > 1), None)
            if twice is not None:
                raise ValueError(f"{field}: {shown(twice)} is listed twice")
        return self

    def _slugs(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each field that refers to a variant, and the slug."""
        yield "baseline", self.baseline
        for variant in self.variants:
            if variant.equal_to is not None:
                yield "variants.equal_to", variant.equal_to
        for run in self.runs:
            yield "runs.variant", run.variant
        for contrast in self.contrasts:
            yield from (("contrasts.pairs", slug) for pair in contrast.pairs for slug in pair)
        for claim in self.published.claims if self.published else ():
            yield from (("published.claims", slug) for slug in (claim.variant, claim.against) if slug is not None)

    @property
    def by_slug(self) -> dict[str, VariantRecord]:
        """The variants by slug, in the order of the design."""
        return {variant.slug: variant for variant in self.variants}


class PluginRecord(Record):
    """A plugin entry that a run uses.

    ``source`` names the file with the sha256 ``source_sha256``: an import name, ``./`` and a path in the project, or an
    absolute path; None for a notebook cell.
    """

    family: str
    name: str
    module: str
    distribution: str
    version: str
    source_sha256: str
    source: str | None = None


class ExecutionRecord(Record):
    """How a run is trained: the run hashes of its stack, its member index, threads, device and precision."""

    stack: tuple[str, ...]
    member: Count
    threads: Count
    device: str | None
    dtype: str


class ImportedRecord(Record):
    """The origin of an imported checkpoint; ``words`` are its vocabulary sizes by side."""

    file: str
    sha256: str
    form: str
    words: Sides
    positions: Count | None


class RunRecord(ResolvedVariant):
    """Identity, configuration and origin of a run; ``execution`` is None until its stack is laid out."""

    format: Literal[1] = 1
    run_hash: str
    experiment: str
    variant: str
    seed: Seed
    plugins: tuple[PluginRecord, ...]
    data: DataRecord
    execution: ExecutionRecord | None = None
    recipe: str | None = None
    imported: ImportedRecord | None = None
    versions: Versions
    created: Date

    @property
    def sources(self) -> dict[tuple[str, str], str]:
        """The source hash of each plugin entry, by family and name."""
        return {(plugin.family, plugin.name): plugin.source_sha256 for plugin in self.plugins}


FileName = Annotated[str, Field(pattern=f"^({'|'.join(map(re.escape, RUN_FILES))}|{EARLIER_ATTEMPT})$")]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class StatusRecord(Record):
    """State and progress of a run; the defaults hold for a run without ``status.json``.

    ``files`` has the sha256 of every file of a finished run, by name.
    """

    state: str = Field(states.PLANNED, pattern=f"^({'|'.join(sorted(states.STORED))})$")
    reason: str | None = None
    signature: str | None = None
    step: Count = 0
    steps: Count | None = None
    started: Date | None = None
    ended: Date | None = None
    attempt: Count = 0
    host: str | None = None
    pid: Count | None = None
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


def _valid_scores(scores: Mapping[str, Any]) -> Mapping[str, Any]:
    _valid_metrics({f"test/{name}": value for name, value in scores.items()})
    return scores


Scores = Annotated[Mapping[str, SkipValidation[int | float | None]], AfterValidator(_valid_scores)]
"""Scores of the test split by the last part of the metric's name."""

Metrics = Annotated[Mapping[MetricName, SkipValidation[int | float | None]], AfterValidator(_valid_metrics)]
"""Metrics by name, each within its range."""


class DecodingRecord(TypedDict):
    """How translations were generated; ``size`` and ``length_penalty`` belong to beam search."""

    decode: str
    max_length: NotRequired[Count]
    size: NotRequired[Count]
    length_penalty: NotRequired[NonNegative]


class BucketRecord(TypedDict):
    """Scores of the test sentences with a source length from ``low`` to ``high``; no maximum if that is None.

    ``counts`` are those of each metric, summed over the sentences; ``Metric.pool`` computes the score from them.
    """

    bucket: str
    low: Count
    high: Count | None
    n: Count
    scores: Scores
    counts: NotRequired[Mapping[str, tuple[NonNegative, ...]]]


class ResultsRecord(Record):
    """The final scores of a run."""

    metrics: Metrics
    buckets: tuple[BucketRecord, ...]
    signatures: Mapping[str, str]
    decoding: DecodingRecord | None = None
    padding: Mapping[str, Fraction] | None = None
    best_step: Count | None
    stopped_early: StrictBool
    backend: BackendRecord | None = None
    notes: tuple[str, ...]


HeadScores = Mapping[str, Number]
"""Scores of a model, or their changes."""

HeadRecord = TypedDict(
    "HeadRecord",
    {
        "role": Role,
        "layer": Count,
        "head": Count,
        "without-one": HeadScores,
        "only-one": HeadScores,
        "entropy": NotRequired[Number],
        "distance": NotRequired[Number],
    },
)
"""The changes of the scores if a head, or every other head of its layer, is masked."""


class _Heads(TypedDict):
    """The content of ``heads.json``."""

    format: Literal[1]
    split: str
    whole: HeadScores
    heads: list[HeadRecord]
    metrics: dict[HeadMetricName, Number | None]


def _equal_names(record: _Heads) -> _Heads:
    names = record["whole"].keys()
    for number, head in enumerate(record["heads"]):
        if not head["without-one"].keys() == head["only-one"].keys() == names:
            raise ValueError(f"heads.{number}: expected {', '.join(names)} in without-one and only-one")
    return record


HeadsRecord = Annotated[_Heads, AfterValidator(_equal_names)]
"""The content of ``heads.json``."""


class ReferenceScores(Record):
    """Scores of translations that need no training, on the first ``test_limit`` sentences of the test data."""

    data_hash: str
    test_limit: Count | None
    sentences: Count
    nearest_neighbour: Scores
    vocabulary_bound: Scores
    source_copy: Scores
    majority: Scores | None = None


class ReferencePointsRecord(Record):
    """The reference points of an experiment, an entry per data set."""

    format: Literal[1] = 1
    data: tuple[ReferenceScores, ...]


class VocabularyRecord(Record):
    """The words of each side by id; None for a checkpoint that was imported without them."""

    source: tuple[str, ...] | None
    target: tuple[str, ...] | None

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.source is None) != (self.target is None):
            raise ValueError("expected the words of both sides, or null for both")
        return self


def read_record(
    kind: type[R], path: Path, parse: Callable[[str], Any] = json.loads, max_bytes: int = files.MAX_BYTES
) -> R | None:
    """Read a record from a JSON file; return None if there is no such file.

    Args:
        kind: The type of the record.
        path: The file.
        parse: Parses the text of the file.
        max_bytes: Maximum size of the file.

    Raises:
        HeadToHeadError: If the content is invalid; names the file and the first invalid field.
    """
    try:
        content = files.read_bytes(path, max_bytes)
    except FileNotFoundError:
        return None
    return parse_record(kind, content, path, parse)


def parse_record(kind: type[R], content: bytes, path: Path, parse: Callable[[str], Any] = json.loads) -> R:
    """Return the record of JSON text that was read from ``path``; raises as `read_record`."""
    value = files.parse_json(content, path, parse)
    try:
        record: R = _adapter(kind).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        problem = " ".join(f"{f'{field}: ' if field else ''}{message}".split())
        raise HeadToHeadError(files.unreadable(path, problem)) from error
    return record


def read_status(run: Path) -> StatusRecord:
    """Return the status of a run directory; a run without ``status.json`` is PLANNED.

    A finished run without one of its files is INTERRUPTED, so that the same command retrains it. ``heads.json`` and
    the files of earlier attempts are not results of training.

    Raises:
        HeadToHeadError: If ``status.json`` is damaged.
    """
    status = stored_status(run)
    required = (name for name in RUN_FILES if name in status.files and name != HEADS)
    missing = next((name for name in required if not os.path.isfile(run / name)), None)
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
