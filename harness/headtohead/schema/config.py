"""One full configuration, as typed sections. Every field says what it means; no other is allowed.

A field belongs to a run's identity unless it is marked ``NotHashed`` (the result does not depend on
it). A field added after the first release is marked ``HashIfChanged(value)``: while it has that value it
is left out of the identity, so that keys of older runs stay what they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from headtohead.errors import nearest
from headtohead.schema.roles import ROLES

NOTHING_HELD_OUT = "nothing-held-out"
"""The split of every dataset that puts all pairs into train, and takes the other parts from it."""


@dataclass(frozen=True)
class NotHashed:
    """Marks a field that the result does not depend on."""


@dataclass(frozen=True)
class HashIfChanged:
    """Marks a field added later: with this value it is left out of the identity."""

    value: Any


@dataclass(frozen=True)
class SetsDefaults:
    """Marks a field that only gives other fields their default; those stand in the identity."""


@dataclass(frozen=True)
class FilePath(NotHashed):
    """Marks a dataset's option that holds one or more paths.

    In an experiment file such a path is relative to that file, on the command line to the working
    directory. A result depends on the content of the files, not on their paths.
    """


class Section(BaseModel):
    """A mapping in an experiment file; what it does not declare is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _fill_name(value: object) -> object:
    """Read the number -1e9, which YAML makes of the unquoted name, as that name."""
    return "-1e9" if value == -1e9 and not isinstance(value, bool) else value


def _seeds(value: object) -> object:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole or isinstance(value, list):
        return value
    raise ValueError(f"expected a number of seeds, or a list of seeds, got {value!r}")


class VocabularyConfig(Section):
    """How words get their ids."""

    min_count: int = Field(1, ge=1, description="words seen less often in training become <unk>")
    max_size: int | None = Field(None, ge=5, description="largest vocabulary of a side, the 4 special tokens included")
    shared: bool = Field(False, description="one vocabulary for both sides")
    ids: Literal["standard", "frequency", "printed", "position"] = Field(
        "standard",
        description="standard: <pad> 0, <unk> 1, <sos> 2, <eos> 3, then words by frequency; "
        "frequency: <pad> 0, <unk> 1 only with unknown: token, then words and boundary tokens "
        "by frequency; printed: the dataset's own tables; position: place in the only pair",
    )
    unknown: Literal["token", "drop", "refuse"] = Field(
        "token", description="token: <unk>; drop: left out without a word; refuse: an error that names it"
    )


class DataConfig(Section):
    """Which sentence pairs, how they are divided and made into tokens."""

    dataset: str = Field("toy-grammar", description="name of a registered dataset")
    options: dict[str, Any] = Field(
        default_factory=dict, description="the dataset's own options; in a file they stand beside `dataset`"
    )
    split: str | None = Field(
        None,
        description="grouped (no group on both sides), row (pairs drawn one by one; labelled leaky "
        "where test sources are also in train), a split of the dataset's own, or nothing-held-out "
        "(all pairs in train, and valid and test taken from them: all, or as many as a number "
        "says; labelled so); default: the dataset's first",
    )
    limit: int | None = Field(None, ge=1, description="pairs kept, after shuffling")
    valid: float = Field(0.05, gt=0, description="validation part: a fraction below 1, or a number of pairs")
    test: float = Field(0.05, gt=0, description="test part: a fraction below 1, or a number")
    seed: int = Field(1, ge=1, description="seed of the shuffle and the split, not of the runs")
    normalise: Literal["none", "unicode", "ascii-fold"] | None = Field(
        None,
        description="none: split on spaces; unicode: NFC, lower case, letters of any script and "
        "digits kept, punctuation to spaces; ascii-fold: as notebook 3, á é í ó ú folded and "
        "everything outside a-z to a space; default: the dataset's own",
    )
    tokens: Literal["word", "subword"] = Field("word", description="subword needs the extra `subwords` (tokenizers)")
    vocabulary: VocabularyConfig = Field(VocabularyConfig(), description="how words get their ids")
    max_words: int | None = Field(None, ge=1, description="pairs with a longer side are dropped and counted")
    source_boundaries: Literal["none", "eos", "sos-eos"] = Field("eos", description="boundary tokens around a source")
    target_boundaries: Literal["none", "sos-eos"] = Field(
        "sos-eos", description="boundary tokens around a target; without them generation has no start and no stop"
    )
    cut: int | None = Field(None, ge=2, description="tokens kept of a side, boundary tokens included; default: all")


class ModelConfig(Section):
    """The encoder-decoder; what plugins decide stands in their own sections."""

    d_model: int = Field(128, ge=1, description="width of embeddings and residual stream")
    heads: int = Field(4, ge=1, description="attention heads")
    layers: Annotated[int, SetsDefaults()] = Field(
        2, ge=1, description="layers of encoder and decoder, unless one is named"
    )
    encoder_layers: int | None = Field(None, ge=1, description="default: layers")
    decoder_layers: int | None = Field(None, ge=1, description="default: layers")
    d_ff: int = Field(512, ge=1, description="inner width of the feed-forward")
    dropout: Annotated[float, SetsDefaults()] = Field(
        0.1, ge=0, lt=1, description="at every place below, unless one is named"
    )
    dropout_embedding: float | None = Field(None, ge=0, lt=1, description="after embedding")
    dropout_attention: float | None = Field(None, ge=0, lt=1, description="on attention weights")
    dropout_ffn: float | None = Field(None, ge=0, lt=1, description="inside the feed-forward")
    dropout_residual: float | None = Field(None, ge=0, lt=1, description="on each residual branch")
    embedding_scale: Literal["one", "sqrt-d_model"] = Field(
        "sqrt-d_model", description="factor on embeddings before positions are added"
    )
    norm: Literal["pre", "post"] = Field("pre", description="LayerNorm before or after each branch")
    final_norm: bool | None = Field(None, description="LayerNorm after each stack; default: only with norm: pre")
    norm_eps: float = Field(1e-5, gt=0, description="added to the variance in LayerNorm")
    activation: Literal["relu", "gelu"] = Field("relu", description="inside the feed-forward")
    bias: bool = Field(True, description="biases in projections and feed-forward")
    tie_embeddings: Literal["none", "output", "all", "embeddings"] = Field(
        "none",
        description="output: projection to words shares the target embedding; all: the source "
        "embedding too, which needs data.vocabulary.shared; embeddings: one table embeds both "
        "sides, whatever their vocabularies, and the projection is its own",
    )
    init: Literal["xavier", "torch"] = Field(
        "xavier",
        description="xavier: uniform Glorot, embeddings N(0, 1/d_model); torch: the defaults of "
        "torch.nn, embeddings N(0, 1)",
    )
    fill: Annotated[Literal["-inf", "-1e9", "additive"], BeforeValidator(_fill_name)] = Field(
        "-inf", description="masked scores: -inf; replaced by -1e9; or -1e9 added to them"
    )
    cross: Literal["encoder", "decoder"] = Field(
        "encoder", description="what the second attention of a decoder layer reads"
    )
    shared: tuple[Literal["norm", "feed-forward"], ...] = Field(
        (), description="parts of which one serves every place of the model"
    )
    decoder_feed_forward: Literal["after-cross", "after-each"] = Field(
        "after-cross", description="after-each: a feed-forward also between the two attentions of a decoder layer"
    )
    min_vocab_size: int | None = Field(None, ge=1, description="embeddings and projection have at least so many words")


class EntryConfig(Section):
    """A registered entry with its options."""

    name: str = Field(description="name of a registered entry")
    options: dict[str, Any] = Field(default_factory=dict, description="all its options, resolved")


class PerRole(Section):
    """One entry for each place where attention happens."""

    encoder: EntryConfig = Field(description="encoder self-attention")
    decoder: EntryConfig = Field(description="decoder self-attention")
    cross: EntryConfig = Field(description="target queries over source keys")

    def role(self, role: str) -> EntryConfig:
        """Return the entry of one role."""
        entry: EntryConfig = getattr(self, role)
        return entry


class EarlyStopping(Section):
    """Stop when a validation metric no longer improves."""

    metric: str = Field("valid/loss", description="validation metric that is watched")
    patience: int = Field(3, ge=1, description="evaluations without a better value before stopping")


ModelPart = Literal[
    "embeddings",
    "positional",
    "encoder-attention",
    "decoder-attention",
    "cross-attention",
    "feed-forward",
    "norm",
    "words",
]


class TrainConfig(Section):
    """The loop: how long, on what batches, with which optimizer."""

    epochs: float | None = Field(None, ge=0, description="passes over the training pairs; 0: evaluated as drawn")
    steps: int | None = Field(None, ge=1, description="optimizer steps; instead of epochs")
    batch_tokens: int = Field(2048, ge=1, description="tokens of a batch on its longer side, padding included, per run")
    length_buckets: Literal["coarse", "exact"] = Field(
        "coarse",
        description="with batch_tokens: pairs that share batches; coarse: whose longer sides are "
        "within four tokens, few shapes; exact: of equal length on both sides as far as there are "
        "enough, next to no padding and many shapes, which cost nothing on a CPU",
    )
    batch_size: int | None = Field(None, ge=1, description="sentences of a shuffled batch, instead of batch_tokens")
    pad_to: Literal["batch", "corpus"] | int = Field(
        "batch",
        description="with batch_size: tokens that sentences are padded to: of the longest of the "
        "batch, of the longest of the corpus on either side, or a number",
    )
    target: Literal["next", "same"] = Field(
        "next", description="what a target token predicts; same: itself, so the answer is the input"
    )
    parts: tuple[ModelPart, ...] | None = Field(
        None, description="parts that are trained, the rest stays as drawn; default: all"
    )
    optimizer: Literal["adam", "adamw"] = Field("adamw", description="Adam, or decoupled decay")
    lr: float = Field(1e-3, gt=0, description="peak learning rate")
    betas: tuple[float, float] = Field((0.9, 0.98), description="Adam's decay rates")
    eps: float = Field(1e-9, gt=0, description="Adam's epsilon")
    weight_decay: float = Field(0.0, ge=0, description="decoupled with adamw, L2 with adam")
    schedule: Literal["constant", "inverse-sqrt", "cosine"] = Field(
        "inverse-sqrt", description="of the learning rate, after warm-up"
    )
    warmup_steps: int = Field(0, ge=0, description="steps of linear warm-up from 0 to lr")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="as torch.nn.CrossEntropyLoss")
    clip_norm: float | None = Field(1.0, gt=0, description="largest gradient norm of a run")
    early_stopping: EarlyStopping | None = Field(None, description="stop on validation")
    evaluate_every: int | None = Field(
        None, ge=1, description="steps between evaluations; default: a tenth of the steps"
    )
    precision: Literal["float32", "bfloat16", "float64"] = Field(
        "float32", description="bfloat16: autocast, on CUDA only"
    )
    backend: Annotated[Literal["auto", "eager", "cuda-graphs", "compile"], NotHashed()] = Field(
        "auto",
        description="how steps are executed; cuda-graphs: replayed on a GPU, for shapes of batches "
        "with 20 planned steps; compile: gradients by torch.compile, for shapes with 5,000 planned "
        "steps; auto: cuda-graphs on a GPU where h2h doctor has verified it, else eager",
    )
    num_microbatches: Annotated[int, NotHashed()] = Field(
        1, ge=1, description="pieces a batch is accumulated over; grows after out-of-memory"
    )
    checkpoint_seconds: Annotated[float, NotHashed()] = Field(
        30.0,
        ge=0,
        description="seconds between resume points, more where writing one takes over 2 % of them; 0: after every step",
    )


class BeamConfig(Section):
    """Beam search: how many hypotheses, and how length weighs."""

    size: int = Field(4, ge=1, le=1000, description="hypotheses of a sentence that are followed")
    length_penalty: float = Field(
        0.6,
        ge=0,
        le=10,
        description="alpha of Wu et al. 2016: log-probabilities are divided by ((5 + length) / 6)^alpha; 0: no penalty",
    )


STEPWISE = ("greedy", "beam")
"""What ``evaluate.decode`` may be where translations are written word by word from <sos> on."""


class EvaluateConfig(Section):
    """What is measured on validation and test sentences."""

    batch_size: int = Field(128, ge=1, description="sentences of an evaluation batch, padded")
    max_length: int | None = Field(
        None, ge=1, description="longest translation; default: 1.5 times the longest in training"
    )
    buckets: tuple[int, ...] = Field(
        (5, 8, 11, 14, 20, 30), description="upper bounds of source lengths, in tokens without eos"
    )
    test_limit: int | None = Field(None, ge=1, description="test sentences that are translated; default: all")
    alone: bool = Field(True, description="score a second time without padding (batches of one)")
    decode: Literal["greedy", "beam", "none", "non-autoregressive", "teacher-forced"] = Field(
        "greedy",
        description="greedy; beam: beam search, as `beam` says; none: no translation, and no "
        "scores of any; zeros: one pass over a target of zeros as long as the source; forced: "
        "from the pass that is given the reference",
    )
    beam: BeamConfig | None = Field(None, description="width and length penalty, with decode: beam")


class RunConfig(Section):
    """One full configuration, seed left out: what a variant is."""

    data: DataConfig = DataConfig()
    positional: PerRole
    attention: PerRole
    masking: PerRole
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    evaluate: EvaluateConfig = EvaluateConfig()


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
