"""The small configurations in which invariants are evaluated.

An entry of one family is combined with default entries of the other families, and with every other
registered entry, one at a time. A recipe is reduced to small sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from headtohead.model.geometry import only_length
from headtohead.planning.compatibility import find_incompatibility
from headtohead.plugins.families import COMPONENTS
from headtohead.plugins.registry import Registered, Registry
from headtohead.schema.run_config import DataConfig, RunConfig, VocabularyConfig, changed
from headtohead.testing import tiny_config
from headtohead.testing.subject import LONGEST
from headtohead.testing.tiny import TRAIN

TOKENWISE = [name for name, family in COMPONENTS.items() if family.acts_per_token]
"""Families that act on each token alone, outside attention, so that entries of other families do not affect them."""

DEFAULTS = "defaults"
"""Description of the configuration in which all other entries are the defaults."""

PATTERN = "every second decoder layer"
"""Description of the roles of an entry that alternates with the default entry."""

MAX_WIDTH, MAX_HEADS, MAX_LAYERS, INNER_WIDTH = 16, 4, 2, 12
"""Sizes to which a recipe's model is reduced; heads are then 4 wide."""


def check_configurations(entry: Registered, registry: Registry) -> Iterator[tuple[str, RunConfig]]:
    """Yield every small configuration that is compatible with an entry, after its description.

    The entry is used in the roles selected by its bare name, in both architectures; in an encoder-decoder also in all
    roles, in each role alone, and in a pattern of decoder layers.
    """
    own: dict[str, Any] = {entry.family: entry.name}
    choices = [
        (DEFAULTS, own),
        ("all layers in a decoder-only model", {**own, "architecture": "decoder-only"}),
    ]
    choices += [
        (f"{entry.family} in {where}", {entry.family: roles})
        for where, roles in role_variants(entry.family, entry.name, registry)
    ]
    choices += [
        (f"{family} {name}", {**own, family: name})
        for family in COMPONENTS
        if family != entry.family and (family in TOKENWISE) == (entry.family in TOKENWISE)
        for name in sorted(registry.entries[family])
    ]
    seen = set()
    for description, names in choices:
        config, _ = compatible_config(names, registry)
        text = "" if config is None else config.model_dump_json()
        if config is not None and text not in seen:
            seen.add(text)
            yield description, config


def compatible_config(names: Mapping[str, Any], registry: Registry) -> tuple[RunConfig | None, str]:
    """Return the small configuration of the given entries, or None with the reason of its incompatibility.

    ``names`` has entries by family, and fields of the section ``model``.

    Raises:
        HeadToHeadError: If an option of an entry is required and missing.
    """
    config = tiny_config(**names)
    # The last target token is a label only.
    longest = {"source": LONGEST[0], "target": (only_length(config) or LONGEST[1]) + 1}
    reason = find_incompatibility(config, longest)
    return (config, "") if reason is None else (None, reason)


def role_variants(family: str, name: str, registry: Registry) -> list[tuple[str, dict[str, Any]]]:
    """Return an entry in all roles, in each role alone, and in every second decoder layer; elsewhere are defaults.

    A masking is used only in the roles in which its bare name selects the masking itself. A causal mask in
    cross-attention would hide source words from the first target positions.
    """
    defaults = _default_names(family)
    role_defaults = registry.find(family, name).entry.role_defaults if family == "masking" else {}
    roles = [role for role in defaults if role_defaults.get(role, name) == name]
    single = [(f"the {role} only", {**defaults, role: name}) for role in roles]
    layers = [(PATTERN, {**defaults, "decoder": [defaults["decoder"], name]})]
    per_layer = layers * ("decoder" in roles and family not in TOKENWISE)
    return [("every role", {**defaults, **dict.fromkeys(roles, name)}), *single, *per_layer]


@cache
def _default_names(family: str) -> dict[str, str]:
    """Return the default entry of each role."""
    config = tiny_config(positional="none")
    return {role: chosen.name for role, chosen in config.entries(family).items()}


def reduced(config: RunConfig) -> RunConfig:
    """Return a recipe's configuration at small sizes, in float64, for four steps on generated words.

    All other settings stay. A model below the limits keeps its sizes.
    """
    model = config.model
    sizes: dict[str, Any] = {
        "encoder_layers": min(model.encoder_layers, MAX_LAYERS),
        "decoder_layers": min(model.decoder_layers, MAX_LAYERS),
    }
    if model.d_model > MAX_WIDTH:
        sizes |= {"d_model": MAX_WIDTH, "heads": min(model.heads, MAX_HEADS), "d_ff": INNER_WIDTH}
    small = changed(
        config,
        model=sizes,
        train={
            **TRAIN,
            "schedule": tiny_config().train.schedule,
            "epochs": None,
            "batch_size": None,
        },
        quirks={"min_vocab_size": None, "pad_to": "batch"},
    )
    vocabulary = VocabularyConfig(shared=config.data.vocabulary.shared)
    data = DataConfig(split="grouped", normalise="none", vocabulary=vocabulary)
    return small.model_copy(update={"data": data})
