"""``RunConfig``: everything that determines a run except its seed.

A run configuration is complete: each field has its value, also where the experiment file leaves it
out. ``None`` is left only where it is a choice (no clipping, no early stopping) or where the value
depends on the prepared data (``train.evaluate_every``, ``evaluate.max_length``); the planner stores
those values in the run's record.

A field belongs to the run hash unless it is marked ``NotHashed``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from headtohead.schema.choices import OptimizerName, PrecisionName
from headtohead.schema.phrases import Phrase
from headtohead.schema.sections import (
    ConfigSection,
    FilePath,
    NotHashed,
    OmittedAtDefault,
    OmittingSection,
    Options,
    ParsedOptions,
    RecordedOptions,
    VariesInStack,
    is_path,
)

NOTHING_HELD_OUT = "nothing-held-out"
"""The split of every dataset that puts all pairs into train, and takes valid and test from them."""

MAX_LAYERS = 256
MAX_WIDTH = 65_536
MAX_D_FF = 2**20
MAX_LENGTH = 100_000
"""Maximum number of tokens of a sentence."""

MAX_STEPS = 10**9
MAX_DATA_SEED = 2**32 - 1

Length = Annotated[int, Field(ge=1, le=MAX_LENGTH)]
DecayRate = Annotated[float, Field(ge=0, lt=1)]
VariesFloat = Annotated[float, VariesInStack()]


def _part(value: float) -> float:
    if value >= 1 and value != int(value):
        raise ValueError(f"expected a fraction below 1 or a whole number of pairs, got {value}")
    return value


def _named(value: object) -> object:
    """Turn the name of an entry into a mapping with this name."""
    return {"name": value} if isinstance(value, str) else value


def _mask_value(value: object) -> object:
    """Turn the number -1e9, which YAML reads from the unquoted name, into that name."""
    return "-1e9" if value == -1e9 and not isinstance(value, bool) else value


PartSize = Annotated[float, Field(gt=0, le=10**9), AfterValidator(_part)]


class SpecialTokens(ConfigSection):
    """Names of the special tokens in ``data.vocabulary.file``; default: the usual names, such as [PAD] or </s>."""

    pad: str | None = None
    """padding; default: the first of <pad>, [PAD], <|pad|>, <|padding|>"""

    unk: str | None = None
    """unknown tokens; default: <unk>, [UNK], <|unk|>, <|unknown|>"""

    bos: str | None = None
    """start of a sentence; default: <s>, <bos>, <sos>, [BOS], [CLS], <|startoftext|>, <|begin_of_text|>"""

    eos: str | None = None
    """end of a sentence; default: </s>, <eos>, [EOS], [SEP], <|endoftext|>, <|end_of_text|>"""


class VocabularyConfig(ConfigSection):
    """How tokens get their ids."""

    min_count: Annotated[int, Phrase("minimum count {value}")] = Field(1, ge=1, le=1_000_000)
    """tokens that occur less often in training become <unk>"""

    max_size: Annotated[
        int | None,
        Phrase("a vocabulary of {value}", named={"null": "without a limit on the vocabulary"}),
    ] = Field(None, ge=5, le=1_000_000)
    """maximum size of a side's vocabulary, including the 4 special tokens; subwords have at least all characters;
    default: no maximum"""

    shared: Annotated[bool, Phrase("{value:with|without} a shared vocabulary")] = False
    """one vocabulary for both sides"""

    ids: Annotated[Literal["standard", "frequency", "printed"], Phrase("{value} ids")] = "standard"
    """standard: <pad> 0, <unk> 1, <sos> 2, <eos> 3, then tokens by frequency; frequency: <pad> 0, <unk> 1 only with
    unknown: token, then tokens and boundary tokens by frequency; printed: the ids of the dataset's own tables, such as
    those of a notebook"""

    unknown: Literal["token", "drop", "refuse"] = "token"
    """unknown tokens; token: replaced by <unk>; drop: removed; refuse: an error"""

    file: Annotated[str | None, FilePath()] = None
    """tokenizer.json of Hugging Face's tokenizers for both sides, with its tokens and ids; its content is part of the
    data hash"""

    special_tokens: Annotated[SpecialTokens, NotHashed()] = SpecialTokens()
    """names of the special tokens in `file`; part of the data hash"""


class DataConfig(ConfigSection):
    """Sentence pairs, their split and their tokens."""

    dataset: str = "toy-grammar"
    """name of a registered dataset"""

    options: ParsedOptions = RecordedOptions()
    """options of the dataset; a file writes them beside `dataset`"""

    limit: Annotated[int | None, Phrase("{value} pairs", named={"null": "all pairs"})] = Field(
        None, ge=1, le=10**9
    )
    """number of pairs kept after shuffling, beside parts for validation and test of the dataset; default: all"""

    valid: Annotated[PartSize, Phrase("validation part {value}")] = 0.05
    """validation part: a fraction below 1, or a number of pairs"""

    test: Annotated[PartSize, Phrase("test part {value}")] = 0.05
    """test part: a fraction below 1, or a number of pairs"""

    seed: Annotated[int, Phrase("data seed {value}")] = Field(1, ge=1, le=MAX_DATA_SEED)
    """seed of the draw of the data: which pairs are kept, and their split"""

    tokens: Annotated[Literal["word", "subword", "character"], Phrase("{value}s")] = "word"
    """subword: byte-pair encoding learned on the training part; character: with ▁ for a space"""

    vocabulary: VocabularyConfig = VocabularyConfig()
    """how tokens get their ids"""

    max_words: Annotated[
        int | None,
        Phrase("sentences of at most {value} words", named={"null": "sentences of any length"}),
    ] = Field(None, ge=1, le=MAX_LENGTH)
    """pairs with a longer side are dropped and counted; default: no maximum"""

    source_boundaries: Annotated[
        Literal["none", "eos", "sos-eos"],
        Phrase("source boundaries {value}", named={"none": "without source boundaries"}),
    ] = "eos"
    """boundary tokens of a source"""

    target_boundaries: Annotated[
        Literal["none", "eos", "sos-eos"],
        Phrase("target boundaries {value}", named={"none": "without target boundaries"}),
    ] = "sos-eos"
    """boundary tokens of a target; generation starts at <sos> and stops at <eos>"""

    truncate_tokens: Annotated[
        int | None, Phrase("sentences cut at {value} tokens", named={"null": "uncut sentences"})
    ] = Field(None, ge=2, le=MAX_LENGTH)
    """tokens kept of a side, boundary tokens included; default: all"""

    split: Annotated[str, Phrase("the {value} split")] = "iid"
    """grouped (no group on both sides), row (pairs are split one by one; reports label it leaky where test sources
    occur in train), another split of the dataset, or nothing-held-out (all pairs in train; valid and test are taken
    from them; reports label it); default: the dataset's first"""

    normalise: Annotated[
        Literal["none", "unicode", "ascii-fold"],
        Phrase(
            named={
                "none": "without normalisation",
                "unicode": "Unicode normalisation",
                "ascii-fold": "ASCII folding",
            }
        ),
    ] = "none"
    """none: split on spaces; unicode: NFC, lower case, letters of any script and digits kept, punctuation to spaces;
    ascii-fold: as notebook 3, á é í ó ú folded and everything outside a-z to a space; default: the dataset's"""

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of all files that hold the data, and of a tokenizer file."""
        paths = [
            getattr(section, name) or ()
            for section in (self.options, self.vocabulary)
            for name, field in type(section).model_fields.items()
            if is_path(field)
        ]
        return tuple(
            path for value in paths for path in ([value] if isinstance(value, str) else value)
        )


class ModelConfig(OmittingSection):
    """The Transformer without its plugins."""

    architecture: Annotated[
        Literal["encoder-decoder", "decoder-only"],
        OmittedAtDefault(),
        Phrase(named={"encoder-decoder": "with an encoder", "decoder-only": "without an encoder"}),
    ] = "encoder-decoder"
    """encoder-decoder: the decoder attends to the encoded source; decoder-only: one causal stack reads source and
    target as one sequence, with one vocabulary and labels on the target only"""

    d_model: Annotated[int, Phrase("width {value}")] = Field(128, ge=1, le=MAX_WIDTH)
    """width of embeddings and residual stream"""

    heads: Annotated[int, Phrase("{value} heads", named={"1": "1 head"})] = Field(4, ge=1, le=1024)
    """attention heads"""

    d_ff: Annotated[int, Phrase("feed-forward width {value}")] = Field(512, ge=1, le=MAX_D_FF)
    """inner width of the feed-forward network; 4x: 4 · d_model"""

    embedding_scale: Annotated[
        Literal["one", "sqrt-d_model"],
        Phrase(
            named={"one": "without scaled embeddings", "sqrt-d_model": "with scaled embeddings"}
        ),
    ] = "sqrt-d_model"
    """factor on embeddings before positions are added"""

    norm: Annotated[
        Literal["pre", "post", "sandwich"],
        Phrase("{value}-norm", named={"sandwich": "sandwich norm"}),
    ] = "pre"
    """position of the norms; pre: before each sublayer; post: after each residual sum; sandwich: before each sublayer
    and after it, before the residual sum"""

    norm_eps: Annotated[float, Phrase("norm epsilon {value}")] = Field(1e-5, gt=0, le=1)
    """added to the variance or the mean square in a norm"""

    bias: Annotated[bool, Phrase("{value:with|without} biases")] = True
    """biases in linear maps and norms"""

    logit_softcap: Annotated[
        float | None,
        OmittedAtDefault(),
        Phrase("logits capped at {value}", named={"null": "without a cap on logits"}),
    ] = Field(None, gt=0, le=10**6)
    """c of the logits c · tanh(logit / c) (Gemma 2: 30); default: none"""

    tie_embeddings: Annotated[
        Literal["none", "output", "all", "embeddings"],
        Phrase(
            named={
                "none": "without tied embeddings",
                "output": "with a tied output projection",
                "all": "with all embeddings tied",
                "embeddings": "with one table for source and target",
            }
        ),
    ] = "none"
    """output: the output projection shares the target embedding; all: also the source embedding, which needs
    data.vocabulary.shared; embeddings: source and target share one table even with separate vocabularies, and the
    output projection has its own weights; with decoder-only, all is output and embeddings is none"""

    init: Annotated[
        Literal["xavier", "torch"],
        VariesInStack(),
        Phrase(named={"xavier": "Xavier initialisation", "torch": "PyTorch's initialisation"}),
    ] = "xavier"
    """xavier: uniform Glorot, embeddings N(0, 1/d_model); torch: the defaults of torch.nn, embeddings N(0, 1)"""

    mask_value: Annotated[
        Literal["-inf", "-1e9", "additive"],
        BeforeValidator(_mask_value),
        VariesInStack(),
        Phrase(
            named={
                "-inf": "masked scores of −∞",
                "-1e9": "masked scores of −1e9",
                "additive": "a subtracted mask",
            }
        ),
    ] = "-inf"
    """masked scores; -inf: set to -inf; -1e9: set to -1e9; additive: 1e9 is subtracted"""

    encoder_layers: Annotated[
        int, Phrase("{value} encoder layers", named={"1": "1 encoder layer"})
    ] = Field(2, ge=0, le=MAX_LAYERS)
    """layers of the encoder; not used with architecture: decoder-only"""

    decoder_layers: Annotated[
        int, Phrase("{value} decoder layers", named={"1": "1 decoder layer"})
    ] = Field(2, ge=1, le=MAX_LAYERS)
    """layers of the decoder"""

    dropout_embedding: Annotated[
        VariesFloat, Phrase("embedding dropout {value}", named={"0": "without embedding dropout"})
    ] = Field(0.1, ge=0, lt=1)
    """dropout after the embedding"""

    dropout_attention: Annotated[
        VariesFloat, Phrase("attention dropout {value}", named={"0": "without attention dropout"})
    ] = Field(0.1, ge=0, lt=1)
    """dropout on attention weights"""

    dropout_ffn: Annotated[
        VariesFloat,
        Phrase("feed-forward dropout {value}", named={"0": "without feed-forward dropout"}),
    ] = Field(0.1, ge=0, lt=1)
    """dropout inside the feed-forward network"""

    dropout_residual: Annotated[
        VariesFloat, Phrase("residual dropout {value}", named={"0": "without residual dropout"})
    ] = Field(0.1, ge=0, lt=1)
    """dropout on sublayer outputs, before the residual sum"""

    final_norm: Annotated[bool, Phrase("{value:with|without} a final norm")] = True
    """a norm after the encoder and after the decoder; default: not with norm: post"""

    shared_modules: tuple[Literal["norm", "feed-forward"], ...] = ()
    """modules with one instance for the whole model"""

    min_vocab_size: Annotated[
        int | None,
        Phrase("at least {value} embeddings", named={"null": "embeddings of the vocabulary alone"}),
    ] = Field(None, ge=1, le=1_000_000)
    """minimum number of rows of embeddings and output projection; default: the vocabulary's size"""

    @property
    def layers_in_all(self) -> int:
        """Number of layers of the whole model."""
        return self.decoder_layers + (
            self.encoder_layers if self.architecture == "encoder-decoder" else 0
        )


class ModelInput(ModelConfig):
    """The section ``model`` of an experiment file, in which `SHORTHANDS` set several fields."""

    layers: Annotated[int, Phrase("{value} layers", named={"1": "1 layer"})] = Field(
        2, ge=1, le=MAX_LAYERS
    )
    """sets encoder_layers and decoder_layers"""

    dropout: Annotated[float, Phrase("dropout {value}", named={"0": "without dropout"})] = Field(
        0.1, ge=0, lt=1
    )
    """sets the four dropout rates"""


SHORTHANDS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("model", "layers"): ("encoder_layers", "decoder_layers"),
    ("model", "dropout"): (
        "dropout_embedding",
        "dropout_attention",
        "dropout_ffn",
        "dropout_residual",
    ),
}
"""Fields that set other fields of their section, as if those were written; the same mapping may override them."""


class EntryConfig(OmittingSection):
    """A registered entry with its options, or the entries of successive layers."""

    name: str
    """name of a registered entry"""

    options: ParsedOptions = RecordedOptions()
    """all options of the entry"""

    next_layers: Annotated[tuple[EntryConfig, ...], OmittedAtDefault()] = ()
    """entries of the next layers, where a file lists several; the list repeats over the layers"""

    @property
    def pattern(self) -> tuple[EntryConfig, ...]:
        """The entries of the first layers, which repeat over the layers; usually one."""
        return (
            (self.model_copy(update={"next_layers": ()}), *self.next_layers)
            if self.next_layers
            else (self,)
        )

    def at(self, layer: int | None) -> EntryConfig:
        """Return the entry of a layer; None is a module outside the layers."""
        return self.pattern[(layer or 0) % len(self.pattern)]


class PerSide(ConfigSection):
    """One entry for the encoder and one for the decoder."""

    encoder: EntryConfig
    """encoder"""

    decoder: EntryConfig
    """decoder"""

    def by_role(self) -> dict[str, EntryConfig]:
        """Return the entries by role."""
        return {role: getattr(self, role) for role in type(self).model_fields}


class PerRole(PerSide):
    """One entry per attention role."""

    cross: EntryConfig
    """target queries over source keys"""


def entry(name: str) -> EntryConfig:
    """Return an entry without options."""
    return EntryConfig(name=name, options=Options())


def both_sides(name: str) -> PerSide:
    """Return the same entry, without options, for encoder and decoder."""
    return PerSide(encoder=entry(name), decoder=entry(name))


class EarlyStopping(ConfigSection):
    """Stop when a validation metric no longer improves."""

    metric: Literal["valid/loss", "valid/perplexity", "valid/token_accuracy"] = "valid/loss"
    """validation metric"""

    patience: Annotated[int, Phrase("patience {value}")] = Field(3, ge=1, le=10**6)
    """evaluations without improvement before training stops"""


ModelPart = Literal[
    "embeddings",
    "positional",
    "encoder-attention",
    "decoder-attention",
    "cross-attention",
    "feed-forward",
    "norm",
    "lm-head",
]
"""A value of ``train.trainable``."""


class TrainConfig(OmittingSection):
    """Length of training, batches and optimizer."""

    epochs: Annotated[
        float | None, Phrase("{value} epochs", named={"1": "1 epoch", "null": "epochs by steps"})
    ] = Field(None, ge=0, le=10**6)
    """passes over the training pairs; 0: the initial model is evaluated"""

    steps: Annotated[
        int | None, Phrase("{value} steps", named={"1": "1 step", "null": "steps by epochs"})
    ] = Field(None, ge=1, le=MAX_STEPS)
    """optimizer steps, instead of epochs"""

    tokens: Annotated[
        int | None,
        OmittedAtDefault(),
        Phrase("{value} training tokens", named={"null": "tokens by epochs"}),
    ] = Field(None, ge=1, le=10**15)
    """target tokens seen in training, instead of epochs: the steps are those of as many passes"""

    batch_tokens: Annotated[int, Phrase("batches of {value} tokens")] = Field(2048, ge=1, le=10**7)
    """tokens of a batch on its longer side, padding included, per run"""

    length_buckets: Annotated[Literal["coarse", "exact"], Phrase("{value} length buckets")] = (
        "coarse"
    )
    """how batch_tokens groups pairs; coarse: longer sides within four tokens, few batch shapes; exact: equal lengths on
    both sides where there are enough pairs, almost no padding and many batch shapes, which are free on a CPU"""

    batch_size: Annotated[
        int | None, Phrase("batches of {value} examples", named={"null": "batches by tokens"})
    ] = Field(None, ge=1, le=10**6)
    """sentences of a shuffled batch, instead of batch_tokens"""

    pad_to: Annotated[
        Literal["batch", "corpus"] | Length,
        Phrase(
            "padding to {value} tokens",
            named={"batch": "padding to the batch", "corpus": "padding to the corpus"},
        ),
    ] = "batch"
    """with batch_size, the length that training sentences are padded to; batch: the longest of the batch; corpus: the
    longest of the corpus on either side; or a number of tokens"""

    trainable: Annotated[tuple[ModelPart, ...] | None, Phrase("training of {value} alone")] = None
    """parts of the model that are trained; the others keep their initial values; default: all"""

    optimizer: Annotated[
        OptimizerName, Phrase(named={"adamw": "AdamW", "adam": "Adam", "muon": "Muon"})
    ] = "adamw"
    """adamw: decoupled weight decay; muon: orthogonalised momentum for the linear maps of attention and feed-forward
    networks, with the root mean square of AdamW's updates, so that lr and weight_decay have the sizes of AdamW; adamw
    for the other parameters, also for matrices that an attention style adds or replaces, such as those of
    multi-head-latent"""

    lr: Annotated[VariesFloat, Phrase("learning rate {value}")] = Field(1e-3, gt=0, le=10**6)
    """peak learning rate"""

    betas: Annotated[tuple[DecayRate, DecayRate], Phrase("Adam's decay rates {value}")] = (
        0.9,
        0.98,
    )
    """Adam's decay rates"""

    eps: Annotated[float, Phrase("Adam's epsilon {value}")] = Field(1e-9, gt=0, le=1)
    """Adam's epsilon"""

    weight_decay: Annotated[
        VariesFloat, Phrase("weight decay {value}", named={"0": "without weight decay"})
    ] = Field(0.0, ge=0, le=1000)
    """decoupled with adamw, L2 with adam"""

    decay: Annotated[
        Literal["all", "matrices"],
        OmittedAtDefault(),
        Phrase("weight decay of {value}", named={"all": "weight decay of all parameters"}),
    ] = "all"
    """parameters with weight decay; all: except those that a component excludes, as gated-delta its decay rates;
    matrices: also without biases, gains of norms and other vectors, as in nanoGPT"""

    schedule: Annotated[EntryConfig, BeforeValidator(_named), VariesInStack()] = EntryConfig(
        name="cosine"
    )
    """learning rate after warm-up: the name of a registered schedule, or a mapping with name and options, such as
    {name: cosine, final_lr: 1.0e-4}"""

    warmup_steps: Annotated[
        int | None,
        VariesInStack(),
        Phrase(
            "{value} warm-up steps",
            named={"0": "without warm-up", "null": "warm-up by the number of steps"},
        ),
    ] = Field(None, ge=0, le=MAX_STEPS)
    """steps of linear warm-up from 0 to lr; default: a twentieth of the steps"""

    label_smoothing: Annotated[
        VariesFloat, Phrase("label smoothing {value}", named={"0": "without label smoothing"})
    ] = Field(0.0, ge=0, lt=1)
    """as in torch.nn.CrossEntropyLoss"""

    z_loss: Annotated[
        float, OmittedAtDefault(), Phrase("z-loss {value}", named={"0": "without z-loss"})
    ] = Field(0.0, ge=0, le=1000)
    """coefficient of the squared log of the softmax denominator, added to the loss (PaLM: 1e-4)"""

    clip_norm: Annotated[
        float | None,
        VariesInStack(),
        Phrase("gradients clipped at {value}", named={"null": "without clipping"}),
    ] = Field(1.0, gt=0, le=10**9)
    """maximum gradient norm of a run"""

    early_stopping: EarlyStopping | None = None
    """stop when a validation metric stops improving"""

    evaluate_every: Annotated[
        int | None,
        Phrase("evaluation every {value} steps", named={"null": "default evaluations"}),
    ] = Field(None, ge=1, le=MAX_STEPS)
    """steps between evaluations; default: a tenth of the steps; a fifth if ten evaluations would cost more than 5 % of
    the training, unless early_stopping is set"""

    precision: Annotated[PrecisionName, Phrase("{value}")] = "float32"
    """tf32: float32 with factors of matrix products rounded to 10 bits, on CUDA only; bfloat16: matrix products with
    bfloat16 factors; weights, sums, norms and losses stay float32, and on a processor attention over at most 24 x 24
    positions does too. h2h doctor measures whether bfloat16 products are faster on a processor"""

    backend: Annotated[Literal["auto", "eager", "cuda-graphs"], NotHashed()] = "auto"
    """how steps are executed; cuda-graphs: replayed on a GPU for batch shapes with at least 20 planned steps, if the
    first replay equals an eager step; auto: cuda-graphs on a GPU, else eager"""

    num_microbatches: Annotated[int, NotHashed()] = Field(1, ge=1, le=10**6)
    """parts of a batch whose gradients are accumulated; grows after out-of-memory"""

    checkpoint_seconds: Annotated[float, NotHashed()] = Field(30.0, ge=0, le=10**9)
    """seconds between resume points, more where writing them takes over 2 % of the time; 0: after every step"""


class EvaluateConfig(ConfigSection):
    """Measurements on validation and test sentences."""

    batch_size: Annotated[int, Phrase("evaluation batches of {value}")] = Field(
        128, ge=1, le=65_536
    )
    """sentences of an evaluation batch, padded"""

    max_length: Annotated[
        int | None,
        Phrase(
            "outputs of at most {value} tokens", named={"null": "outputs of the default length"}
        ),
    ] = Field(None, ge=1, le=MAX_LENGTH)
    """maximum tokens of a translation; an output that ends there needs no <eos>; default: 1.5 times the longest in
    training"""

    buckets: tuple[Length, ...] = (5, 8, 11, 14, 20, 30)
    """upper bounds of source lengths, in tokens without <eos>"""

    test_limit: Annotated[
        int | None, Phrase("{value} test sentences", named={"null": "all test sentences"})
    ] = Field(None, ge=1, le=10**9)
    """number of test sentences to translate, chosen at random; default: all"""

    unpadded: Annotated[bool, Phrase("{value:with|without} scores without padding")] = True
    """compute the scores a second time without padding (batches of one)"""

    decode: Annotated[
        Literal["greedy", "none", "non-autoregressive", "teacher-forced"],
        Phrase("{value} decoding", named={"none": "without decoding"}),
    ] = "greedy"
    """greedy: the most likely token at each step, from <sos> on; none: no translations and no scores of them;
    non-autoregressive: one pass over a target of zeros as long as the source; teacher-forced: the most likely tokens of
    the pass that reads the reference"""

    @field_validator("buckets")
    @classmethod
    def _rising(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(low >= high for low, high in itertools.pairwise(value)):
            raise ValueError("expected rising upper bounds, such as [5, 8, 11]")
        return value


class RunConfig(OmittingSection):
    """A complete configuration without its seed: a variant."""

    data: DataConfig
    positional: PerRole = PerRole(
        encoder=entry("sinusoidal"), decoder=entry("sinusoidal"), cross=entry("none")
    )
    attention: PerRole = PerRole(
        encoder=entry("split-heads"), decoder=entry("split-heads"), cross=entry("split-heads")
    )
    masking: PerRole = PerRole(
        encoder=entry("padding"), decoder=entry("padding-causal"), cross=entry("padding")
    )
    feed_forward: Annotated[PerSide, OmittedAtDefault()] = both_sides("relu")
    norm: Annotated[PerSide, OmittedAtDefault()] = both_sides("layernorm")
    model: ModelConfig
    train: TrainConfig = TrainConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    quirks: Annotated[dict[str, ParsedOptions], OmittedAtDefault()] = Field({})
    """options by the name of a quirk, of the quirks that change something"""

    @property
    def roles(self) -> tuple[str, ...]:
        """The attention roles of the model, in the order in which its attentions are built."""
        return (
            ("decoder",)
            if self.model.architecture == "decoder-only"
            else tuple(PerRole.model_fields)
        )

    def entry(self, family: str, role: str) -> EntryConfig:
        """Return the entry of a component's family in a role."""
        chosen: EntryConfig = getattr(getattr(self, family), role)
        return chosen

    def pattern(self, family: str, role: str) -> tuple[EntryConfig, ...]:
        """Return the entries of a family in the first layers of a role, which repeat over the layers."""
        return self.entry(family, role).pattern

    def entry_of_layer(self, family: str, role: str, layer: int | None) -> EntryConfig:
        """Return the entry of a family in a layer of a role; None is a module outside the layers."""
        return self.entry(family, role).at(layer)

    def entries(self, family: str) -> dict[str, EntryConfig]:
        """Return the entries of a plugin family by role, in the roles that the model has."""
        entries: dict[str, EntryConfig] = getattr(self, family).by_role()
        return {role: entries[role] for role in self.roles if role in entries}

    def component_entries(self) -> Iterator[tuple[str, str, EntryConfig]]:
        """Yield family, role and entry of every component, layer by layer; also of roles that the model lacks."""
        for family in type(self).model_fields:
            by_role = getattr(self, family)
            if isinstance(by_role, PerSide):
                for role, chosen in by_role.by_role().items():
                    for layer_entry in chosen.pattern:
                        yield family, role, layer_entry


QUIRKS = "quirks"
"""The field of a configuration with the options of quirks, by name; the plugin of a quirk validates them."""

SECTIONS: dict[str, type[ConfigSection]] = {
    "data": DataConfig,
    "model": ModelInput,
    "train": TrainConfig,
    "evaluate": EvaluateConfig,
}
"""Sections of a configuration that are not plugin families, as an experiment file has them."""

MEMBER_FIELDS: dict[str, list[str]] = {
    section: [
        name
        for name, info in SECTIONS[section].model_fields.items()
        if VariesInStack() in info.metadata
    ]
    for section in ("train", "model")
}
"""Fields in which members of a stack may differ, by section."""


def changed(config: RunConfig, **sections: Mapping[str, Any]) -> RunConfig:
    """Return the configuration with other values of some fields, by section; nothing is validated."""
    return config.model_copy(
        update={
            name: getattr(config, name).model_copy(update=dict(fields))
            for name, fields in sections.items()
        }
    )
