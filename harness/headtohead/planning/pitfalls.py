"""Choices that are pitfalls: allowed, because notebooks made them, and named wherever they show.

Only the configuration is looked at. What a pitfall does to a model is measured elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headtohead.plugins.registry import Registry
from headtohead.schema.run_config import STEPWISE, RunConfig


@dataclass(frozen=True)
class Pitfall:
    """A choice that makes a result mean less than it seems to.

    ``name`` is short enough for a table, ``field`` is the choice, ``says`` what follows from it.
    """

    name: str
    field: str
    consequence: str


def find_pitfalls(config: RunConfig, registry: Registry) -> tuple[Pitfall, ...]:
    """Return the pitfalls of a resolved configuration, in the order of its sections."""
    return tuple(pitfall for find in _RULES for pitfall in find(config, registry))


_Rule = Callable[[RunConfig, Registry], Iterator[Pitfall]]


def _data(config: RunConfig, registry: Registry) -> Iterator[Pitfall]:
    data = config.data
    if data.split == "nothing-held-out":
        yield Pitfall(
            "nothing held out",
            "data.split",
            "every pair is trained on, so scores tell what was remembered, not what was learned",
        )
    if data.split == "row":
        yield Pitfall(
            "split by rows",
            "data.split",
            "a sentence with several translations can be both in training and in the test set",
        )
    if data.normalise == "ascii-fold":
        yield Pitfall(
            "letters lost",
            "data.normalise",
            "letters outside a-z other than á é í ó ú become spaces: ñ and ü split words in two",
        )
    if data.vocabulary.unknown == "drop":
        yield Pitfall(
            "words dropped",
            "data.vocabulary.unknown",
            "words outside the vocabulary vanish without a trace: other sentences are translated than were written",
        )
    if data.target_boundaries == "none" and config.evaluate.decode in {*STEPWISE, "none"}:
        yield Pitfall(
            "no boundary tokens",
            "data.target_boundaries",
            "the first word of a target is never predicted, and a translation cannot begin or end",
        )


def _model(config: RunConfig, registry: Registry) -> Iterator[Pitfall]:
    model = config.model
    if config.quirks.cross_attention_memory == "decoder":
        yield Pitfall(
            "source ignored",
            "quirks.cross_attention_memory",
            "the second attention reads the decoder itself: no output depends on the source",
        )
    if model.tie_embeddings == "embeddings" and not config.data.vocabulary.shared:
        yield Pitfall(
            "one table, two vocabularies",
            "model.tie_embeddings",
            "words of the two languages that happen to have the same id share one embedding",
        )


def _positional(config: RunConfig, registry: Registry) -> Iterator[Pitfall]:
    roles = [role for role in ("encoder", "decoder") if config.positional.role(role).options.get("index") == "row"]
    if roles:
        yield Pitfall(
            "positions by batch row",
            f"positional.{'.index, positional.'.join(roles)}.index",
            "every token of a sentence gets the same position, that of its row in the batch: word "
            "order is not heard, and a sentence's result depends on where in a batch it stands",
        )


def _attention(config: RunConfig, registry: Registry) -> Iterator[Pitfall]:
    if config.attention.decoder.name == "embedding-softmax":
        yield Pitfall(
            "mask on embeddings",
            "attention.decoder",
            "the mask is added to embeddings, not to scores: -1e9 drowns nearly all that earlier tokens say",
        )


def _masking(config: RunConfig, registry: Registry) -> Iterator[Pitfall]:
    if _shows(config, registry, "decoder", "hides-future"):
        yield Pitfall(
            "future not masked",
            "masking.decoder",
            "in training the decoder reads the very words it is asked to predict",
        )
    elif config.quirks.cross_attention_memory == "decoder" and _shows(config, registry, "cross", "hides-future"):
        yield Pitfall(
            "future not masked",
            "masking.cross",
            "the second attention reads the decoder unmasked: in training it sees the very words "
            "that it is asked to predict",
        )
    if config.train.batch_size == 1:
        return
    sides = [role for role in ("encoder", "cross") if _shows(config, registry, role, "hides-padding")]
    if sides and not (sides == ["cross"] and config.quirks.cross_attention_memory == "decoder"):
        yield Pitfall(
            "padding not masked",
            f"masking.{', masking.'.join(sides)}",
            "padding is attended to, so a sentence's result depends on the batch it is in",
        )


def _shows(config: RunConfig, registry: Registry, role: str, promise: str) -> bool:
    """Tell whether the masking of a role means to show what the promise would hide."""
    chosen = config.masking.role(role)
    masking = registry.masking(chosen.name)
    properties = masking(masking.Options.model_validate(chosen.options)).role_properties(role)
    return properties is not None and promise not in properties


def _training(config: RunConfig, registry: Registry) -> Iterator[Pitfall]:
    train = config.train
    if train.epochs == 0:
        yield Pitfall("never trained", "train.epochs", "the weights are as they were drawn")
    if not config.quirks.shift_targets:
        yield Pitfall(
            "targets not shifted",
            "quirks.shift_targets",
            "targets are not shifted: each word is asked to predict itself, which it can see",
        )
    if config.quirks.trainable is not None:
        yield Pitfall(
            "parameters frozen",
            "quirks.trainable",
            f"only {', '.join(config.quirks.trainable) or 'nothing'} is trained; the rest stays as drawn",
        )
    if isinstance(config.quirks.pad_to, int):
        yield Pitfall(
            "fixed padding",
            "quirks.pad_to",
            f"every sentence is padded to {config.quirks.pad_to} tokens: most of the computation is on padding",
        )


def _decoding(config: RunConfig, registry: Registry) -> Iterator[Pitfall]:
    decode = config.evaluate.decode
    if decode == "non-autoregressive":
        yield Pitfall(
            "not autoregressive",
            "evaluate.decode",
            "all words are guessed in one pass over zeros: no word knows the words before it",
        )
    if decode == "teacher-forced":
        yield Pitfall(
            "reference as input", "evaluate.decode", "translations are read off a pass that was given the reference"
        )


_RULES: tuple[_Rule, ...] = (_data, _positional, _attention, _masking, _model, _training, _decoding)
