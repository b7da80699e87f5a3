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
from headtohead.plugins.registry import Registered, current, find_entry
from headtohead.schema.run_config import DataConfig, RunConfig, VocabularyConfig, changed
from headtohead.testing import tiny_config
from headtohead.testing.subject import LONGEST
from headtohead.testing.tiny import TRAIN

TOKENWISE = [name for name, family in COMPONENTS.items() if family.acts_per_token]
"""Families that act on each token alone, outside attention, so that entries of other families do not affect them."""

DEFAULTS = "defaults"
"""Description of the configuration in which all other entries are the defaults."""

ONLY = " only"
"""End of the description of a configuration with an entry in a single role of several."""

PATTERN = "every second decoder layer"
"""Description of the roles of an entry that alternates with the default entry."""

MAX_WIDTH = 16
"""Largest width of a recipe's model that is not reduced; heads are then 4 wide."""
MAX_HEADS = 4
MAX_LAYERS = 2
INNER_WIDTH = 12


def check_configurations(entry: Registered) -> Iterator[tuple[str, RunConfig]]:
    """Yield every small configuration that is compatible with an entry, after its description.

    The entry is used in the roles selected by its bare name, in both architectures; in an encoder-decoder also in all
    roles, in each role alone, and in a pattern of decoder layers. With an entry of another family, the decoder has a
    single layer.
    """
    seen = set()
    for description, names in _choices(entry.family, entry.name):
        config, _ = compatible_config(names)
        if config is None:
            continue
        text = config.model_dump_json()
        if text not in seen:
            seen.add(text)
            yield description, config


def _choices(family: str, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the arguments of `compatible_config` for every configuration with an entry, after their description."""
    yield DEFAULTS, {family: name}
    yield "all layers in a decoder-only model", {family: name, "architecture": "decoder-only"}
    for where, roles in role_variants(family, name):
        yield f"{family} in {where}", {family: roles}
    for other in COMPONENTS:
        # A token-wise entry is not affected by entries of attention.
        if other == family or (other in TOKENWISE) != (family in TOKENWISE):
            continue
        for partner in sorted(current().entries[other]):
            yield f"{other} {partner}", {family: name, other: partner, "decoder_layers": 1}


def compatible_config(names: Mapping[str, Any]) -> tuple[RunConfig | None, str]:
    """Return the small configuration of the given entries, or None with the reason of its incompatibility.

    ``names`` has entries by family, and fields of the section ``model``.

    Raises:
        HeadToHeadError: If an option of an entry is required and missing.
    """
    config = tiny_config(**names)
    # The last target token is a label only.
    longest = {"source": LONGEST[0], "target": (only_length(config) or LONGEST[1]) + 1}
    reason = find_incompatibility(config, longest)
    if reason is not None:
        return None, reason
    return config, ""


def role_variants(family: str, name: str) -> list[tuple[str, dict[str, Any]]]:
    """Return an entry in all roles, in each role alone, and in every second decoder layer; elsewhere are defaults.

    A masking is used only in the roles in which its bare name selects the masking itself. A causal mask in
    cross-attention would hide source words from the first target positions.
    """
    defaults = _default_names(family)
    roles = list(defaults)
    if family == "masking":
        by_role = find_entry(family, name).entry.role_defaults
        roles = [role for role in defaults if by_role.get(role, name) == name]
    variants: list[tuple[str, dict[str, Any]]] = []
    variants.append(("every role", {**defaults, **dict.fromkeys(roles, name)}))
    for role in roles:
        variants.append((f"the {role}{ONLY}", {**defaults, role: name}))
    if "decoder" in roles and family not in TOKENWISE:
        every_second = [defaults["decoder"], name]
        variants.append((PATTERN, {**defaults, "decoder": every_second}))
    return variants


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
        model={**sizes, "min_vocab_size": None},
        train={
            **TRAIN,
            "pad_to": "batch",
            "schedule": tiny_config().train.schedule,
            "epochs": None,
            "batch_size": None,
        },
    )
    vocabulary = VocabularyConfig(shared=config.data.vocabulary.shared)
    data = DataConfig(split="grouped", normalise="none", vocabulary=vocabulary)
    return small.model_copy(update={"data": data})
