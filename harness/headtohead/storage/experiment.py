"""The folder of an experiment: ``experiment.json``, ``reference_points.json`` and its run directories."""

from __future__ import annotations

import logging
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Self

from pydantic import AfterValidator, ConfigDict, Field, StrictBool, model_validator
from typing_extensions import TypedDict

from headtohead.config.labels import Scalar, axis_value, text
from headtohead.config.source_location import shown
from headtohead.data.splits import LEAKY_SHARE
from headtohead.errors import HeadToHeadError
from headtohead.files import LARGE_BYTES, write_json
from headtohead.schema.metric import Metric
from headtohead.schema.roles import Role
from headtohead.schema.run_config import NOTHING_HELD_OUT, RunConfig
from headtohead.storage import metrics
from headtohead.storage.contrasts import ContrastRecord
from headtohead.storage.paths import checked_path
from headtohead.storage.record import (
    AxisValue,
    Count,
    Date,
    Fraction,
    NonNegative,
    Number,
    Record,
    Seed,
    Sha256,
    Sides,
    Versions,
    read_record,
    required_record,
)
from headtohead.storage.results import MetricName, Scores
from headtohead.storage.tuning import TuningRecord

EXPERIMENT = "experiment.json"
REFERENCE_POINTS = "reference_points.json"

log = logging.getLogger(__name__)

MAX_TOKENS = 100_000
"""Maximum value of ``decoding_limit``."""


class PassagesRecord(TypedDict):
    """The passages of a part of a text: their number, predicted tokens, and beginning and end in the text."""

    number: Count
    tokens: Count
    places: list[tuple[Count, Count]]


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
    labels: NotRequired[dict[str, Count]]
    passages: NotRequired[dict[str, PassagesRecord]]
    losses_without_model: NotRequired[dict[str, float]]
    dropped: NotRequired[dict[str, Count]]
    vocabulary: Sides
    longest: NotRequired[Sides]
    longest_in_train: NotRequired[Count]
    leak: NotRequired[Fraction]
    leaky: NotRequired[StrictBool]
    valid_leaks: NotRequired[dict[str, Fraction]]
    leaked_shares: NotRequired[dict[str, Fraction]]
    bag_of_words_upper_bound: NotRequired[Fraction | None]
    vocabulary_upper_bound: NotRequired[Fraction]
    unk_rate: NotRequired[dict[str, dict[str, Fraction]]]
    notes: list[str]


def examples_of(data: Mapping[str, Any]) -> str:
    """Return the name of the examples of a data record: pairs, blocks of a text, or sequences with labels."""
    if "labels" in data:
        return "sequences"
    return "blocks" if (data.get("longest") or {}).get("source") == 0 else "pairs"


LEAKING = {"pairs": "sources are", "blocks": "text is", "sequences": "sequences are"}
"""What is counted as a leak, with its verb, by the name of the examples."""

VALID_LEAKS = {
    "train": "in training, so the validation loss measures memorisation too",
    "test": "in the test set, so checkpoints are selected on test examples too",
}
"""The effect of validation examples that another part has, by that part."""


def leaked_part(data: Mapping[str, Any]) -> str:
    """Return the fraction of the test set that is in training, as a clause about sources, text or sequences."""
    return f"{100 * data['leak']:.1f} % of the test {LEAKING[examples_of(data)]} in training"


class ValidationLeak(NamedTuple):
    """The share of the validation set that is in another part, and a clause about it."""

    share: float
    clause: str

    @property
    def is_serious(self) -> bool:
        """Whether the share is large enough to label the split leaky."""
        return self.share >= LEAKY_SHARE


def leaked_validation(data: Mapping[str, Any]) -> list[ValidationLeak]:
    """Return the leaks between the validation set and each of training and test.

    There is none with ``data.split: nothing-held-out``, which leaks by intention. The keys of ``valid_leaks`` are
    those of `VALID_LEAKS`.
    """
    if data["split"] == NOTHING_HELD_OUT:
        return []
    shares = data.get("valid_leaks") or {}
    kind = LEAKING[examples_of(data)]
    return [
        ValidationLeak(share, f"{100 * share:.1f} % of the validation {kind} {VALID_LEAKS[part]}")
        for part, share in shares.items()
        if share > 0
    ]


class ModelCounts(Record):
    """Costs of a model, counted without training.

    ``non_embedding`` leaves out the embeddings of tokens and positions, and ``lm_head``, as Kaplan et al. 2020
    (arXiv:2001.08361, section 2.1) do. Encodings that act on attention scores count.
    ``attention`` counts the weights of all attentions without embeddings of values. ``flops_per_token`` are the FLOPs
    of a forward pass over a pair of mean lengths, per target token, with logits at labelled tokens only; a training
    step needs about three times as many. ``inner_width`` is heads times key width of the self-attention in the first
    layer of the decoder. ``path`` is the attention path, fused or explicit, by role.
    """

    total: Count
    non_embedding: Count
    attention: Count
    flops_per_token: NonNegative
    inner_width: Count
    path: Mapping[Role, str]


@dataclass(frozen=True)
class Pitfall:
    """A setting that makes a result less meaningful than it appears.

    ``name`` is short enough for a table, ``field`` is the configuration field, and ``consequence`` explains the
    effect in one sentence.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    field: str
    consequence: str


class ResolvedVariant(Record):
    """Configuration and costs of a variant, part of both ``experiment.json`` and ``run.json``.

    ``d_ff_asked`` is the d_ff of the experiment file, which differs from ``d_ff`` if matching has changed it.
    ``rate_decays`` is whether the learning rate is lowered towards the last step.
    """

    title: str
    axes: Mapping[str, AxisValue]
    counts: ModelCounts
    d_ff: Count
    d_ff_asked: Count
    match: str
    steps: Count
    evaluate_every: Count
    decoding_limit: Annotated[int, Field(strict=True, ge=0, le=MAX_TOKENS)]
    order_invariant: StrictBool
    padding_hidden: StrictBool = False
    rate_decays: StrictBool = False
    pitfalls: tuple[Pitfall, ...]
    config: RunConfig

    @property
    def resolved(self) -> dict[str, Any]:
        """The fields that ``experiment.json`` and ``run.json`` share."""
        return {name: getattr(self, name) for name in ResolvedVariant.model_fields}


class VariantRecord(ResolvedVariant):
    """A variant of an experiment; ``equal_to`` is the slug of a variant that it equals by construction.

    ``phrases`` has what people call the value of each axis.
    """

    slug: str
    phrases: Mapping[str, str] = {}
    equal_to: str | None = None
    equal_reason: str | None = None

    def phrase(self, axis: str) -> str:
        """Return what people call the value of an axis; those of axes that change together are joined."""
        return _phrase(axis, self.phrases, self.axes)

    @property
    def data_name(self) -> str:
        """The dataset, with the name of its file, download or language pair if it has one.

        A path or an address is shortened to its last part, up to the first dot: ``text corpus`` for
        ``data/corpus.txt.gz``.
        """
        options: Mapping[str, Any] = self.config.data.options.model_dump()
        for option in DATA_NAMES:
            value = options.get(option)
            if value:
                _, _, name = str(value).replace("\\", "/").rpartition("/")
                return f"{self.config.data.dataset} {name.partition('.')[0]}"
        return self.config.data.dataset


DATA_NAMES = ("file", "download", "pair")
"""Dataset options that identify the data; `data_name` appends the first option that is set."""


def _phrase(axis: str, phrases: Mapping[str, str], axes: Mapping[str, AxisValue]) -> str:
    paths = axis.split(" and ")
    return ", ".join(phrases.get(path, text(axes.get(path))) for path in paths)


class ExcludedRecord(Record):
    """An excluded combination of the design; ``phrases`` as in a `VariantRecord`."""

    slug: str
    title: str
    axes: Mapping[str, AxisValue]
    phrases: Mapping[str, str] = {}
    reason: str
    source: Literal["exclude", "incompatible"]


class MetricRecord(Record):
    """A metric that a dataset of the experiment declares; ``low`` and ``high`` are None where it has no bound."""

    label: str
    low: Number | None
    high: Number | None
    higher_is_better: StrictBool | None
    decimals: Annotated[int, Field(strict=True, ge=0, le=8)]
    unit: str

    @classmethod
    def of(cls, metric: Metric) -> Self:
        """Return the record of a metric, without its functions."""
        low, high = metric.range
        return cls(
            label=metric.label,
            low=low if math.isfinite(low) else None,
            high=high if math.isfinite(high) else None,
            higher_is_better=metric.higher_is_better,
            decimals=metric.decimals,
            unit=metric.unit,
        )

    def metric(self, name: str) -> Metric:
        """Return the metric, whose scores cannot be computed again."""
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        return Metric(
            name=name,
            label=self.label,
            range=(low, high),
            higher_is_better=self.higher_is_better,
            decimals=self.decimals,
            unit=self.unit,
        )


class ReportedMetrics(Record):
    """The primary metric, and the metrics of the report's table.

    ``declared`` are the metrics that only datasets of the experiment have, by name, so that its results can be read
    without the plugins of these datasets.
    """

    primary: MetricName
    report: tuple[MetricName, ...]
    declared: Mapping[str, MetricRecord] = {}

    def describe(self) -> None:
        """Describe the declared metrics to `headtohead.storage.metrics`."""
        metrics.describe([record.metric(name) for name, record in self.declared.items()])


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
    """A sentence for which attention maps are recorded; a stack has its target and where the target comes from."""

    source: str
    target: str | None
    target_from: str | None = None


class PlannedRunRecord(Record):
    """A run of an experiment; ``reused_from`` is the path of another experiment's run with the same result."""

    variant: str
    seed: Seed
    run_hash: str
    directory: str
    reused_from: str | None = None

    def path(self, experiment: Path, *, tree: bool = False) -> Path:
        """Return the directory of the run of an experiment's folder; ``tree`` as in `checked_path`."""
        if self.reused_from:
            return checked_path(experiment.parent, self.reused_from, tree=tree)
        return checked_path(experiment, self.directory, tree=tree)


class EntryRecord(Record):
    """A plugin entry of a role in which variants differ; ``summary`` is the first line of its docstring."""

    family: str
    name: str
    summary: str


def _folder_name(name: str) -> str:
    if not re.fullmatch(r"[^./\\][^/\\]*", name) or not name.isprintable():
        raise ValueError(f"{name!r} is not a valid folder name")
    return name


class ExperimentRecord(Record):
    """The plan of an experiment.

    ``axis_names`` has what people call its axes, such as ``learning rate``. ``late_fields`` has the fields of the
    question that were chosen after results existed, with the date of the last change.
    """

    format: Literal[1] = 1
    name: Annotated[str, AfterValidator(_folder_name)]
    question: str
    description: str | None = None
    file: str | None = None
    text: str = ""
    command: str
    created: Date
    axes: tuple[str, ...]
    axis_names: Mapping[str, str] = {}
    baseline: str
    seeds: tuple[Seed, ...]
    variants: tuple[VariantRecord, ...]
    tuning: TuningRecord | None = None
    excluded: tuple[ExcludedRecord, ...] = ()
    contrasts: tuple[ContrastRecord, ...]
    match: str
    entries: tuple[EntryRecord, ...] = ()
    metrics: ReportedMetrics
    margins: Mapping[MetricName, MarginRecord] = {}
    looks: LooksRecord | None = None
    late_fields: Mapping[str, Date] = {}
    probes: tuple[ProbeSentence, ...]
    notes: tuple[str, ...]
    data: DataRecord
    data_files: Mapping[str, Sha256] = {}
    runs: Annotated[tuple[PlannedRunRecord, ...], Field(min_length=1)]
    versions: Versions

    @model_validator(mode="after")
    def _references(self) -> Self:
        """Check that every slug is that of a variant, and that no variant and no run is listed twice."""
        slugs = Counter(variant.slug for variant in self.variants)
        used = [
            ("baseline", self.baseline),
            *(
                ("variants.equal_to", variant.equal_to)
                for variant in self.variants
                if variant.equal_to is not None
            ),
            *(("runs.variant", run.variant) for run in self.runs),
            *(
                ("contrasts.settings", slug)
                for contrast in self.contrasts
                for slug in contrast.variants
            ),
        ]
        for field, slug in used:
            if slug not in slugs:
                raise ValueError(f"{field}: {shown(slug)} is the slug of no variant")
        runs = Counter((run.variant, run.seed) for run in self.runs)
        for field, counts in (("variants", slugs), ("runs", runs)):
            twice = next((name for name, count in counts.items() if count > 1), None)
            if twice is not None:
                raise ValueError(f"{field}: {shown(twice)} is listed twice")
        return self

    @property
    def by_slug(self) -> dict[str, VariantRecord]:
        """The variants by slug, in the order of the design."""
        return {variant.slug: variant for variant in self.variants}

    def axis_name(self, axis: str) -> str:
        """Return what people call an axis, or the axes that change together."""
        return " and ".join(self.axis_names.get(path, path) for path in axis.split(" and "))

    def phrase(self, axis: str, value: Scalar) -> str:
        """Return what people call a value of an axis, or of axes that change together; else the value as text."""
        paths = axis.split(" and ")
        combinations: list[VariantRecord | ExcludedRecord] = [*self.variants, *self.excluded]
        for combination in combinations:
            axes = combination.axes
            if axes.keys() >= {*paths} and axis_value(paths, axes) == value:
                return _phrase(axis, combination.phrases, axes)
        return text(value)


class CopyError(HeadToHeadError):
    """A folder contains the record of another experiment and would replace its report and MLflow page."""


@dataclass(frozen=True)
class ExperimentDirectory:
    """An experiment's folder and the content of its ``experiment.json``."""

    path: Path
    record: ExperimentRecord

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the record of an experiment's folder, which has the name of the experiment."""
        experiment = cls.read_any(path)
        experiment.refuse_copy()
        return experiment

    @classmethod
    def find_record(cls, path: Path) -> ExperimentRecord | None:
        """Return the record of an experiment's folder; None without a record, or if it is damaged or a copy."""
        try:
            return cls.read(path).record
        except HeadToHeadError:
            return None

    @classmethod
    def read_any(cls, path: Path) -> Self:
        """Read the record of an experiment's folder, which can be a copy under another name.

        Names of metrics then have the meaning of this record.
        """
        advice = "start with h2h run FILE, or pass its runs folder with --runs"
        file = checked_path(path, EXPERIMENT)
        record = required_record(ExperimentRecord, file, advice, LARGE_BYTES)
        record.metrics.describe()
        return cls(path, record)

    @classmethod
    def write(cls, path: Path, record: ExperimentRecord) -> None:
        """Create or replace the record of an experiment's folder."""
        write_json(path / EXPERIMENT, record.to_json())
        record.metrics.describe()

    def refuse_copy(self) -> None:
        """Raise a `CopyError` if the folder has another name than the experiment."""
        folder = os.path.basename(os.path.abspath(self.path))
        if folder != self.name:
            advice = f"move it out of the runs folder, and rename it to '{self.name}' to read it"
            raise CopyError(f"'{folder}' is a copy of experiment '{self.name}'; {advice}")

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.record.name


def experiment_folders(runs_root: Path) -> Iterator[Path]:
    """Yield the folders of all experiments of a runs folder by name; copies are skipped with a warning."""
    for record in sorted(runs_root.glob(f"[!.]*/{EXPERIMENT}")):
        try:
            ExperimentDirectory.read(record.parent)
        except CopyError as error:
            log.warning(error)
            continue
        except HeadToHeadError:  # damaged, which is the error of the command
            pass
        yield record.parent


class ReferenceScores(Record):
    """Scores of translations that need no training, on the sentences that runs with this ``test_limit`` translate."""

    data_hash: str
    test_limit: Count | None
    sentences: Count
    nearest_neighbour: Scores
    vocabulary_bound: Scores
    source_copy: Scores | None = None
    majority: Scores | None = None


class ReferencePointsRecord(Record):
    """The reference points of an experiment, an entry per data set."""

    format: Literal[1] = 1
    data: tuple[ReferenceScores, ...]


def read_reference_points(experiment_dir: Path) -> tuple[ReferenceScores, ...]:
    """Return the reference points of an experiment by data set; empty if they were not computed."""
    record = read_record(ReferencePointsRecord, checked_path(experiment_dir, REFERENCE_POINTS))
    return record.data if record else ()
