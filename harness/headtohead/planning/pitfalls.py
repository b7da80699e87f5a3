"""Pitfalls: settings that notebooks used and that make a result less meaningful.

They are allowed and shown with every result. The rules depend on the configuration, and on the leak
of its data where it is measured; the effect of a pitfall on a model is measured in
``headtohead_notebooks.pitfalls``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headtohead.config.entries import entries_of
from headtohead.plugins.registry import Registry
from headtohead.schema.roles import roles_of
from headtohead.schema.run_config import STEPWISE, EntryConfig, RunConfig
from headtohead.storage.experiment import Pitfall


def find_pitfalls(config: RunConfig, registry: Registry, leak: float | None = None) -> tuple[Pitfall, ...]:
    """Return the pitfalls of a resolved configuration, in the order of its sections.

    A split is no pitfall if ``leak``, the leak of the prepared data, is 0; None if it is not measured.
    """
    found = (pitfall for find in _RULES for pitfall in find(config, registry))
    return tuple(pitfall for pitfall in found if leak != 0 or pitfall.field != "data.split")


_Rule = Callable[[RunConfig, Registry], Iterator[Pitfall]]


def _data(config: RunConfig, registry: Registry) -> Iterator[Pitfall]:
    data = config.data
    if data.split == "nothing-held-out":
        yield Pitfall(
            "nothing held out",
            "data.split",
            "all pairs are in the training set, so scores measure memorisation, not generalisation",
        )
    if data.split == "row":
        yield Pitfall(
            "split by rows",
            "data.split",
            "a sentence with several translations can be in the training set and in the test set",
        )
    if data.normalise == "ascii-fold":
        yield Pitfall(
            "letters lost",
            "data.normalise",
            "letters outside a-z other than á é í ó ú become spaces: ñ and ü split a word in two",
        )
    if data.vocabulary.unknown == "drop":
        yield Pitfall(
            "words dropped",
            "data.vocabulary.unknown",
            "words outside the vocabulary are removed: the model translates other sentences than the user wrote",
        )
    if data.target_boundaries == "none" and config.evaluate.decode in {*STEPWISE, "none"}:
        yield Pitfall(
            "no boundary tokens",
            "data.target_boundaries",
            "the first word of a target is never a label, and a translation has no start and no end",
        )


def _model(config: RunConfig, registry: Registry) -> Iterator[Pitfall]:
    model = config.model
    if config.quirks.cross_attention_memory == "decoder":
        yield Pitfall(
            "source ignored",
            "quirks.cross_attention_memory",
            "cross-attention attends to the decoder itself: no output depends on the source",
        )
    if model.tie_embeddings == "embeddings" and not config.data.vocabulary.shared:
        yield Pitfall(
            "one table, two vocabularies",
            "model.tie_embeddings",
            "words of the two languages with the same id share an embedding",
        )


def _positional(config: RunConfig, registry: Registry) -> Iterator[Pitfall]:
    roles = [role for role in ("encoder", "decoder") if _position_is_row(config.positional.role(role), registry)]
    if roles:
        yield Pitfall(
            "positions by batch row",
            f"positional.{', positional.'.join(roles)}",
            "every token of a sentence gets the same position, its row index in the batch: the model cannot "
            "represent word order, and a sentence's result depends on its row",
        )


def _position_is_row(chosen: EntryConfig, registry: Registry) -> bool:
    return registry.positional(chosen.name).index(chosen.options) == "row"


def _attention(config: RunConfig, registry: Registry) -> Iterator[Pitfall]:
    for role in roles_of(config):
        for name, consequence in registry.attention(config.attention.role(role).name).pitfalls.items():
            yield Pitfall(name, f"attention.{role}", consequence)


def _masking(config: RunConfig, registry: Registry) -> Iterator[Pitfall]:
    if _lacks(config, registry, "decoder", "hides-future"):
        yield Pitfall(
            "future not masked", "masking.decoder", "in training the decoder attends to the tokens that it predicts"
        )
    elif config.quirks.cross_attention_memory == "decoder" and _lacks(config, registry, "cross", "hides-future"):
        yield Pitfall(
            "future not masked",
            "masking.cross",
            "cross-attention attends to the decoder without a mask: in training it attends to the tokens "
            "that the model predicts",
        )
    if config.train.batch_size == 1:
        return
    sides = [role for role in ("encoder", "cross") if _lacks(config, registry, role, "hides-padding")]
    if sides and not (sides == ["cross"] and config.quirks.cross_attention_memory == "decoder"):
        yield Pitfall(
            "padding not masked",
            f"masking.{', masking.'.join(sides)}",
            "padding is attended to, so a sentence's result depends on the other sentences of its batch",
        )


def padding_has_no_effect(config: RunConfig, registry: Registry) -> bool:
    """Return whether a sentence has the same scores in a padded batch and alone, because its masks hide all padding.

    False for entries of plugins, whose declarations nothing has verified, and for positions by batch row.
    """
    used = [(family, chosen.name) for family, chosen in entries_of(config)]
    if not all(name in registry.entries[family] and registry.find(family, name).is_built_in for family, name in used):
        return False
    if any(_position_is_row(config.positional.role(role), registry) for role in ("encoder", "decoder")):
        return False
    source = ["cross"] if config.quirks.cross_attention_memory == "encoder" else []
    # In self-attention, padding follows every token.
    targets = [role for role in roles_of(config) if role not in source]
    return not any(_lacks(config, registry, role, "hides-padding") for role in source) and not any(
        _lacks(config, registry, role, "hides-padding") and _lacks(config, registry, role, "hides-future")
        for role in targets
    )


def _lacks(config: RunConfig, registry: Registry, role: str, hiding: str) -> bool:
    """Return whether the masking of a role lacks the property ``hiding``, such as ``hides-future``."""
    entry = config.masking.role(role)
    masking = registry.masking(entry.name)
    properties = masking(entry.options).role_properties(role)
    return properties is not None and hiding not in properties


def _training(config: RunConfig, registry: Registry) -> Iterator[Pitfall]:
    train = config.train
    if train.epochs == 0:
        yield Pitfall("never trained", "train.epochs", "the weights keep their values at initialisation")
    if not config.quirks.shift_targets:
        yield Pitfall(
            "targets not shifted",
            "quirks.shift_targets",
            "labels are not shifted: each token is its own label, and the decoder attends to it",
        )
    if config.quirks.trainable is not None:
        yield Pitfall(
            "parameters frozen",
            "quirks.trainable",
            f"only {', '.join(config.quirks.trainable) or 'nothing'} is trained; the other parameters keep their "
            "values at initialisation",
        )
    if isinstance(config.quirks.pad_to, int):
        yield Pitfall(
            "fixed padding",
            "quirks.pad_to",
            f"every sentence is padded to {config.quirks.pad_to} tokens: most of the computation is spent on padding",
        )


def _decoding(config: RunConfig, registry: Registry) -> Iterator[Pitfall]:
    decode = config.evaluate.decode
    if decode == "non-autoregressive":
        yield Pitfall(
            "not autoregressive",
            "evaluate.decode",
            "all tokens are predicted in one pass over zeros: no token depends on the tokens before it",
        )
    if decode == "teacher-forced":
        yield Pitfall(
            "reference as input",
            "evaluate.decode",
            "translations are the most likely tokens of a pass that receives the reference",
        )


_RULES: tuple[_Rule, ...] = (_data, _positional, _attention, _masking, _model, _training, _decoding)
