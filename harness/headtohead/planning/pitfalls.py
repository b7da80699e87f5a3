"""Pitfalls: settings that notebooks used and that make a result less meaningful.

They are allowed and shown with every result. The rules depend on the configuration, and on the leak
of its data where it is measured; the effect of a pitfall on a model is measured in
``headtohead_notebooks.pitfalls``.
"""

from __future__ import annotations

from headtohead.config.entries import entries_of
from headtohead.plugins.registry import Registry
from headtohead.schema.run_config import RunConfig
from headtohead.storage.experiment import Pitfall

CONSEQUENCES = {
    "nothing held out": "all pairs are in the training set, so scores measure memorisation, not generalisation",
    "split by rows": "a sentence with several translations can be in the training set and in the test set",
    "letters lost": "letters outside a-z other than á é í ó ú become spaces: ñ and ü split a word in two",
    "words dropped": "words outside the vocabulary are removed: the model translates other sentences than were given",
    "no boundary tokens": "the first word of a target is never a label, and a translation has no start and no end",
    "positions by batch row": "every token of a sentence gets the same position, its row index in the batch: the model "
    "cannot represent word order, and a sentence's result depends on its row",
    "future not masked": "in training the model attends to the tokens that it predicts",
    "padding not masked": "padding is attended to, so a sentence's result depends on the other sentences of its batch",
    "source ignored": "cross-attention attends to the decoder itself: no output depends on the source",
    "one table, two vocabularies": "words of the two languages with the same id share an embedding",
    "never trained": "the weights keep their values at initialisation",
    "targets not shifted": "labels are not shifted: each token is its own label, and the decoder attends to it",
    "parameters frozen": "the parameters outside quirks.trainable keep their values at initialisation",
    "fixed padding": "every sentence is padded to the same length: most of the computation is spent on padding",
    "not autoregressive": "all tokens are predicted in one pass over zeros: no token depends on the tokens before it",
    "reference as input": "translations are the most likely tokens of a pass that receives the reference",
}
"""The consequence of each pitfall, by its name. Attention styles declare further pitfalls."""


def find_pitfalls(
    config: RunConfig, registry: Registry, leak: float | None = None
) -> tuple[Pitfall, ...]:
    """Return the pitfalls of a resolved configuration, in the order of its sections.

    A split is no pitfall if ``leak``, the leak of the prepared data, is 0; None if it is not measured.
    """
    data, train, quirks, decode = config.data, config.train, config.quirks, config.evaluate.decode
    roles, reads_decoder = config.roles, quirks.cross_attention_memory == "decoder"
    by_row = _roles_by_row(config, registry)
    future = [
        role
        for role in roles
        if role != "encoder" and _lacks(config, registry, role, "hides-future")
    ]
    padded = [
        role
        for role in roles
        if role != "decoder" and _lacks(config, registry, role, "hides-padding")
    ]
    defaults = registry.dataset(data.dataset).defaults
    intended = {
        (section, name): value
        for section, fields in defaults.items()
        for name, value in fields.items()
    }
    no_start = data.target_boundaries == "none" != intended.get(("data", "target_boundaries"))
    padding_matters = (
        padded and train.batch_size != 1 and not (padded == ["cross"] and reads_decoder)
    )
    two_in_one = config.model.tie_embeddings == "embeddings" and not data.vocabulary.shared
    styles = dict.fromkeys(
        (role, entry.name) for role in roles for entry in config.attention.role(role).pattern
    )
    of_styles = [
        (role, *pitfall)
        for role, style in styles
        for pitfall in registry.attention(style).pitfalls.items()
    ]
    consequences = CONSEQUENCES | {name: text for _, name, text in of_styles}
    rules = [
        ("nothing held out", "data.split", data.split == "nothing-held-out" and leak != 0),
        ("split by rows", "data.split", data.split == "row" and leak != 0),
        ("letters lost", "data.normalise", data.normalise == "ascii-fold"),
        ("words dropped", "data.vocabulary.unknown", data.vocabulary.unknown == "drop"),
        (
            "no boundary tokens",
            "data.target_boundaries",
            no_start and decode in ("greedy", "none"),
        ),
        ("positions by batch row", f"positional.{', positional.'.join(by_row)}", by_row),
        *((name, f"attention.{role}", True) for role, name, _ in of_styles),
        ("future not masked", "masking.decoder", "decoder" in future),
        ("future not masked", "masking.cross", future == ["cross"] and reads_decoder),
        ("padding not masked", f"masking.{', masking.'.join(padded)}", padding_matters),
        ("source ignored", "quirks.cross_attention_memory", reads_decoder),
        ("one table, two vocabularies", "model.tie_embeddings", two_in_one),
        ("never trained", "train.epochs", train.epochs == 0),
        ("targets not shifted", "quirks.shift_targets", not quirks.shift_targets),
        ("parameters frozen", "quirks.trainable", quirks.trainable is not None),
        ("fixed padding", "quirks.pad_to", isinstance(quirks.pad_to, int)),
        ("not autoregressive", "evaluate.decode", decode == "non-autoregressive"),
        (
            "reference as input",
            "evaluate.decode",
            decode == "teacher-forced" != intended.get(("evaluate", "decode")),
        ),
    ]
    return tuple(
        Pitfall(name, field, consequences[name]) for name, field, applies in rules if applies
    )


def padding_has_no_effect(config: RunConfig, registry: Registry) -> bool:
    """Return whether a sentence has the same scores in a padded batch and alone, because its masks hide all padding.

    False for entries of plugins, whose declarations nothing has verified, and for positions by batch row.
    """
    used = [(family, chosen.name) for family, chosen in entries_of(config)]
    if not all(
        name in registry.entries[family] and registry.find(family, name).is_built_in
        for family, name in used
    ):
        return False
    if _roles_by_row(config, registry):
        return False
    is_read = config.quirks.cross_attention_memory == "encoder"
    source = [role for role in config.roles if role == "cross" and is_read]
    # In self-attention, padding follows every token.
    targets = [role for role in config.roles if role not in source]
    return not any(_lacks(config, registry, role, "hides-padding") for role in source) and not any(
        _lacks(config, registry, role, "hides-padding")
        and _lacks(config, registry, role, "hides-future")
        for role in targets
    )


def is_order_invariant(config: RunConfig, registry: Registry) -> bool:
    """Return whether the model treats the source as a bag of words, so that the data's upper bound applies to it.

    A model can depend on positions through a positional encoding, an attention style with position-dependent scores,
    or a mask that allows different keys for different queries, in the encoder or in cross-attention. In a decoder-only
    model, the causal mask allows a source token the tokens before it, so a second layer depends on their order.
    """
    if "encoder" not in config.roles:
        return False
    for role in ("encoder", "cross"):
        positional, attention = (
            family.role(role).pattern for family in (config.positional, config.attention)
        )
        if (
            any(
                "order-invariant" not in registry.positional(entry.name).properties
                for entry in positional
            )
            or any(
                registry.attention(entry.name).depends_on_order(entry.options)
                for entry in attention
            )
            or _lacks(config, registry, role, "shows-the-rest")
            or any(
                own is None or "hides-future" in own for own in _declared(config, registry, role)
            )
        ):
            return False
    return True


def _roles_by_row(config: RunConfig, registry: Registry) -> list[str]:
    patterns = {
        role: config.positional.role(role).pattern for role in config.roles if role != "cross"
    }
    return [
        role
        for role, own in patterns.items()
        if any(registry.positional(entry.name).by_row for entry in own)
    ]


def _lacks(config: RunConfig, registry: Registry, role: str, hiding: str) -> bool:
    """Return whether a masking of a role lacks the property ``hiding``, such as ``hides-future``."""
    return any(own is not None and hiding not in own for own in _declared(config, registry, role))


def _declared(config: RunConfig, registry: Registry, role: str) -> list[frozenset[str] | None]:
    """Return the declared properties of a role's maskings by layer of the pattern; None where they are unknown."""
    pattern = config.masking.role(role).pattern
    return [registry.masking(entry.name)(entry.options).role_properties(role) for entry in pattern]
