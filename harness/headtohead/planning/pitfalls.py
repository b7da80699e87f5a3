"""Pitfalls: settings that notebooks used and that make a result less meaningful.

They are allowed and shown with every result. A rule depends on the configuration, and on the leak of its data where it
is measured; ``RULES`` lists them. Attention styles and quirks declare further pitfalls. The effect of a pitfall on a
model is measured in ``headtohead_notebooks.pitfalls``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headtohead.config.entries import names_built_in_only
from headtohead.model.quirks import key_sides, quirks_of
from headtohead.plugins.registry import (
    calling,
    find_attention,
    find_dataset,
    find_masking,
    find_positional,
)
from headtohead.schema.run_config import NOTHING_HELD_OUT, RunConfig
from headtohead.storage.experiment import Pitfall

FindField = Callable[[RunConfig, float | None], str | None]
"""Returns the field of a configuration that causes a pitfall, or None; the number is the leak of the data."""


@dataclass(frozen=True)
class PitfallRule:
    """The name and the consequence of a pitfall, and the function that finds the field that causes it."""

    name: str
    consequence: str
    find_field: FindField


def pitfall(name: str, consequence: str) -> Callable[[FindField], PitfallRule]:
    """Return a decorator that makes the rule of a function."""

    def rule(find_field: FindField) -> PitfallRule:
        return PitfallRule(name, consequence, find_field)

    return rule


def find_pitfalls(config: RunConfig, leak: float | None = None) -> tuple[Pitfall, ...]:
    """Return the pitfalls of a resolved configuration; empty without any.

    Their order is: data, positions, attention styles, masking, quirks, model, training, evaluation.

    Args:
        config: A resolved configuration.
        leak: Fraction of the test set that is in the training set; None if it is not measured. With 0, a split is no
            pitfall.

    Raises:
        HeadToHeadError: If an attention style, a masking, an encoding, a quirk or the dataset is not registered, or a
            plugin fails.
    """
    return (
        *_pitfalls_of_rules(RULES_BEFORE_ATTENTION, config, leak),
        *_pitfalls_of_styles(config),
        *_pitfalls_of_rules(RULES_OF_MASKS, config, leak),
        *_pitfalls_of_quirks(config),
        *_pitfalls_of_rules(RULES_AFTER_QUIRKS, config, leak),
    )


def _pitfalls_of_rules(
    rules: Iterable[PitfallRule], config: RunConfig, leak: float | None
) -> list[Pitfall]:
    pitfalls = []
    for rule in rules:
        field = rule.find_field(config, leak)
        if field is not None:
            pitfalls.append(Pitfall(rule.name, field, rule.consequence))
    return pitfalls


def _pitfalls_of_styles(config: RunConfig) -> list[Pitfall]:
    """Return the pitfalls that the attention styles of a configuration declare, by role."""
    pitfalls = []
    for role in config.roles:
        names = dict.fromkeys(entry.name for entry in config.pattern("attention", role))
        for name in names:
            for pitfall_name, consequence in find_attention(name).pitfalls.items():
                pitfalls.append(Pitfall(pitfall_name, f"attention.{role}", consequence))
    return pitfalls


def _pitfalls_of_quirks(config: RunConfig) -> list[Pitfall]:
    """Return the pitfalls that the quirks of a configuration declare, by option."""
    pitfalls = []
    for quirk in quirks_of(config):
        with calling(type(quirk)):
            for option, (name, consequence) in quirk.pitfalls_by_option(quirk.options).items():
                field = f"quirks.{quirk.entry_name}.{option}"
                pitfalls.append(Pitfall(name, field, consequence))
    return pitfalls


@pitfall(
    "nothing held out",
    "all pairs are in the training set, so scores measure memorisation, not generalisation",
)
def _nothing_held_out(config: RunConfig, leak: float | None) -> str | None:
    if config.data.split == NOTHING_HELD_OUT and leak != 0:
        return "data.split"
    return None


@pitfall(
    "split by rows",
    "a sentence with several translations can be in the training set and in the test set",
)
def _split_by_rows(config: RunConfig, leak: float | None) -> str | None:
    if config.data.split == "row" and leak != 0:
        return "data.split"
    return None


@pitfall(
    "letters lost",
    "letters outside a-z other than á é í ó ú become spaces: ñ and ü split a word in two",
)
def _letters_lost(config: RunConfig, leak: float | None) -> str | None:
    if config.data.normalise == "ascii-fold":
        return "data.normalise"
    return None


@pitfall(
    "words dropped",
    "words outside the vocabulary are removed: the model translates other sentences than were given",
)
def _words_dropped(config: RunConfig, leak: float | None) -> str | None:
    if config.data.vocabulary.unknown == "drop":
        return "data.vocabulary.unknown"
    return None


@pitfall(
    "no boundary tokens",
    "the first word of a target is never a label, and a translation has no start and no end",
)
def _no_boundary_tokens(config: RunConfig, leak: float | None) -> str | None:
    decodes = config.evaluate.decode in ("greedy", "none")
    is_default = _default(config, "data", "target_boundaries") == "none"
    if config.data.target_boundaries == "none" and decodes and not is_default:
        return "data.target_boundaries"
    return None


def _default(config: RunConfig, section: str, field: str) -> object:
    """Return the default that the dataset sets for a field; None if it sets none."""
    return find_dataset(config.data.dataset).defaults.get(section, {}).get(field)


@pitfall(
    "positions by batch row",
    "every token of a sentence gets the same position, its row index in the batch: the model cannot represent word "
    "order, and a sentence's result depends on its row",
)
def _positions_by_batch_row(config: RunConfig, leak: float | None) -> str | None:
    roles = _roles_by_row(config)
    return ", ".join(f"positional.{role}" for role in roles) or None


@pitfall("future not masked", "in training the model attends to the tokens that it predicts")
def _future_not_masked(config: RunConfig, leak: float | None) -> str | None:
    if "decoder" in config.roles and _lacks(config, "decoder", "hides-future"):
        return "masking.decoder"
    reads_decoder = "cross" in config.roles and key_sides(config)["cross"] == "target"
    if reads_decoder and _lacks(config, "cross", "hides-future"):
        return "masking.cross"
    return None


@pitfall(
    "padding not masked",
    "padding is attended to, so a sentence's result depends on the other sentences of its batch",
)
def _padding_not_masked(config: RunConfig, leak: float | None) -> str | None:
    """Return the maskings of encoder and cross-attention that do not hide padding, or None.

    A role counts if a masking of any of its layers does not; maskings with unknown properties do not count. None also
    if batches have one sentence, or if only cross-attention to the decoder's own tokens is concerned.

    Raises:
        HeadToHeadError: If a masking or a quirk of the configuration is not registered.
    """
    if config.train.batch_size == 1:
        return None
    roles = []
    for role in config.roles:
        if role != "decoder" and _lacks(config, role, "hides-padding"):
            roles.append(role)
    if roles == ["cross"] and key_sides(config)["cross"] == "target":
        return None
    return ", ".join(f"masking.{role}" for role in roles) or None


@pitfall(
    "one table, two vocabularies",
    "words of the two languages with the same id share an embedding",
)
def _one_table_for_two_vocabularies(config: RunConfig, leak: float | None) -> str | None:
    if config.model.tie_embeddings == "embeddings" and not config.data.vocabulary.shared:
        return "model.tie_embeddings"
    return None


@pitfall("never trained", "the weights keep their values at initialisation")
def _never_trained(config: RunConfig, leak: float | None) -> str | None:
    if config.train.epochs == 0:
        return "train.epochs"
    return None


@pitfall(
    "parameters frozen",
    "the parameters outside train.trainable keep their values at initialisation",
)
def _parameters_frozen(config: RunConfig, leak: float | None) -> str | None:
    if config.train.trainable is not None:
        return "train.trainable"
    return None


@pitfall(
    "fixed padding",
    "every sentence is padded to the same length: most of the computation is spent on padding",
)
def _fixed_padding(config: RunConfig, leak: float | None) -> str | None:
    if isinstance(config.train.pad_to, int):
        return "train.pad_to"
    return None


@pitfall(
    "not autoregressive",
    "all tokens are predicted in one pass over zeros: no token depends on the tokens before it",
)
def _not_autoregressive(config: RunConfig, leak: float | None) -> str | None:
    if config.evaluate.decode == "non-autoregressive":
        return "evaluate.decode"
    return None


@pitfall(
    "reference as input",
    "translations are the most likely tokens of a pass that receives the reference",
)
def _reference_as_input(config: RunConfig, leak: float | None) -> str | None:
    is_default = _default(config, "evaluate", "decode") == "teacher-forced"
    if config.evaluate.decode == "teacher-forced" and not is_default:
        return "evaluate.decode"
    return None


RULES_BEFORE_ATTENTION: tuple[PitfallRule, ...] = (
    _nothing_held_out,
    _split_by_rows,
    _letters_lost,
    _words_dropped,
    _no_boundary_tokens,
    _positions_by_batch_row,
)
RULES_OF_MASKS: tuple[PitfallRule, ...] = (_future_not_masked, _padding_not_masked)
RULES_AFTER_QUIRKS: tuple[PitfallRule, ...] = (
    _one_table_for_two_vocabularies,
    _never_trained,
    _parameters_frozen,
    _fixed_padding,
    _not_autoregressive,
    _reference_as_input,
)
RULES = (*RULES_BEFORE_ATTENTION, *RULES_OF_MASKS, *RULES_AFTER_QUIRKS)


def padding_has_no_effect(config: RunConfig) -> bool:
    """Return whether a sentence certainly has the same scores in a padded batch and alone.

    This is certain if the masks hide all padding: they declare that they hide it or, where queries attend to their own
    sequence, that they hide later tokens. It is not certain for positions by batch row, or for plugins that are not
    built in: their declarations are unverified.
    """
    if not names_built_in_only(config):
        return False
    if _roles_by_row(config):
        return False
    for role in config.roles:
        if not _lacks(config, role, "hides-padding"):
            continue
        # Padding follows every token of its own sequence, so a mask that hides later tokens hides it too.
        reads_source = role == "cross" and key_sides(config)["cross"] == "source"
        if reads_source or _lacks(config, role, "hides-future"):
            return False
    return True


def is_order_invariant(config: RunConfig) -> bool:
    """Return whether the model treats the source as a bag of words, so that the data's upper bound applies to it.

    A model can depend on positions through a positional encoding, an attention style with position-dependent scores,
    or a mask that allows different keys for different queries, in the encoder or in cross-attention. In a decoder-only
    model, the causal mask allows a source token the tokens before it, so a second layer depends on their order.
    """
    if "encoder" not in config.roles:
        return False
    return not (_depends_on_order(config, "encoder") or _depends_on_order(config, "cross"))


def _depends_on_order(config: RunConfig, role: str) -> bool:
    """Return whether the attention of a role can depend on the order of its keys.

    It does if an encoding or a style depends on positions, or a mask hides some keys that are no padding. Masks with
    unknown properties count as depending on order.

    Raises:
        HeadToHeadError: If an entry of the role is not registered, or a plugin fails.
    """
    for entry in config.pattern("positional", role):
        if "order-invariant" not in find_positional(entry.name).properties:
            return True
    for entry in config.pattern("attention", role):
        style = find_attention(entry.name)
        with calling(style):
            depends_on_order = style.depends_on_order(entry.options)
        if depends_on_order:
            return True
    for properties in _mask_properties(config, role):
        if properties is None or "hides-future" in properties:
            return True
    return _lacks(config, role, "shows-the-rest")


def _roles_by_row(config: RunConfig) -> list[str]:
    """Return the roles with a positional encoding by batch row.

    Raises:
        HeadToHeadError: If an encoding is not registered.
    """
    roles = []
    for role in config.roles:
        if role != "cross":
            entries = config.pattern("positional", role)
            if any(find_positional(entry.name).by_row for entry in entries):
                roles.append(role)
    return roles


def _lacks(config: RunConfig, role: str, hiding: str) -> bool:
    """Return whether a masking of a role lacks the property ``hiding``, such as ``hides-future``."""
    maskings = _mask_properties(config, role)
    return any(masking is not None and hiding not in masking for masking in maskings)


def _mask_properties(config: RunConfig, role: str) -> list[frozenset[str] | None]:
    """Return the declared properties of a role's maskings by layer of the pattern; None where they are unknown."""
    properties = []
    for entry in config.pattern("masking", role):
        scheme = find_masking(entry.name)
        with calling(scheme):
            properties.append(scheme(entry.options).role_properties(role))
    return properties
