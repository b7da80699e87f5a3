"""Builds the parts of a model, with every parameter initialised by its member's generator."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from headtohead.model.attention import MultiHeadAttention
from headtohead.model.dropout import Dropout, DropoutRNG, Thresholds
from headtohead.model.geometry import Bound, VocabSizes, find_bound, find_geometry
from headtohead.model.layers import (
    Generators,
    Init,
    ResidualBlock,
    SharedModule,
    StackedEmbedding,
    StackedFeedForward,
    StackedLinear,
)
from headtohead.model.members import (
    MaskValue,
    PerLayerMasking,
    PerLayerPositional,
    PerMemberMasking,
    PerMemberMaskValue,
    PerMemberPositional,
    groups,
    same_or_each,
)
from headtohead.model.quirks import key_sides
from headtohead.plugins.attention import Attention
from headtohead.plugins.component import BuildContext, Component, Geometry, require_members
from headtohead.plugins.masking import Masking
from headtohead.plugins.norm import Norm
from headtohead.plugins.positional import Positional
from headtohead.plugins.registry import (
    construct,
    find_attention,
    find_entry,
    find_masking,
    find_positional,
    registered,
)
from headtohead.schema.run_config import EntryConfig, ModelConfig, RunConfig


def member_generator(seed: int, purpose: str) -> torch.Generator:
    """Return the random generator of a run for a purpose; purposes have independent streams."""
    digest = hashlib.sha256(f"{purpose}/{seed}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def build_components(config: RunConfig, seeds: Sequence[int]) -> None:
    """Build the encodings and attention styles of a variant with their initial values, to check them.

    Raises:
        HeadToHeadError: If an entry or a quirk is unknown, a plugin fails while it is constructed, `require_members`
            refuses a component, or a style refuses the sizes of the model.
    """
    build = Builder([config] * len(seeds), seeds)
    for role, layers in build.num_layers.items():
        build.positional(role)
        for layer in range(layers):
            build.style(role, layer)


def _dropout_thresholds(models: Sequence[ModelConfig]) -> dict[str, Thresholds]:
    """Return the thresholds of dropout by the kind of site, for the members with these models."""
    thresholds = {}
    for kind in ("embedding", "attention", "ffn", "residual"):
        rates = [getattr(model, f"dropout_{kind}") for model in models]
        thresholds[kind] = Thresholds(same_or_each(rates))
    return thresholds


def _init_of(models: Sequence[ModelConfig]) -> Init:
    """Return the initialisation that all members have, or a list with that of each."""
    inits = [model.init for model in models]
    if len(set(inits)) == 1:
        return inits[0]
    return inits


def _mask_value_of(models: Sequence[ModelConfig]) -> MaskValue:
    """Return the mask value that all members have, or a `PerMemberMaskValue`."""
    mask_values = [model.mask_value for model in models]
    if len(set(mask_values)) == 1:
        return mask_values[0]
    return PerMemberMaskValue(mask_values)


def _num_layers(config: RunConfig) -> dict[str, int]:
    """Return the number of layers by role; cross-attention has those of the decoder."""
    num_layers = {}
    for role in config.roles:
        num_layers[role] = config.model.decoder_layers
    if "encoder" in num_layers:
        num_layers["encoder"] = config.model.encoder_layers
    return num_layers


class Builder:
    """Builds the parts of a model, in the order in which ``Transformer`` requests them.

    The order matters: every part draws its initial values from the members' generators, and every dropout site gets the
    next number.

    Args:
        configs: A configuration per member; sizes, and entries that members must share, are those of the first.
        seeds: A seed per member; None builds a single member on the device ``meta``, without data.

    Raises:
        HeadToHeadError: If a quirk or an attention style is unknown, a quirk or ``geometry`` of a plugin fails, or the
            sizes of a style are inconsistent with the model.
    """

    def __init__(self, configs: Sequence[RunConfig], seeds: Sequence[int] | None) -> None:
        """Create generators and head geometries; a `HeadToHeadError` if a style is unknown or refuses the sizes."""
        self.configs = configs
        self.config = configs[0]
        models = [config.model for config in configs]
        self._thresholds = _dropout_thresholds(models)
        self.init = _init_of(models)
        self.mask_value = _mask_value_of(models)
        self.generators: Generators = [None]
        self.device = torch.device("meta")
        if seeds is not None:
            self.generators = [member_generator(seed, "init") for seed in seeds]
            self.device = torch.device("cpu")
        keys = [member_generator(seed, "dropout").initial_seed() for seed in seeds or [0]]
        self.dropout_rng = DropoutRNG(keys, self.device)
        self._sites = 0
        self.positionals: nn.ModuleDict
        self.vocab_sizes = VocabSizes(1, 1)
        self.shared: dict[str, nn.Module] = {}
        self.key_sides = key_sides(self.config)
        self.num_layers = _num_layers(self.config)
        """The number of layers by role."""
        self.geometries: dict[str, list[Geometry]] = {}
        """The head geometry of each layer by role."""
        for role, layers in self.num_layers.items():
            self.geometries[role] = [
                find_geometry(self.config, role, layer) for layer in range(layers)
            ]

    def _context(
        self, role: str, layer: int | None, members: Sequence[int] | None = None
    ) -> BuildContext:
        """Return what a component may use to build itself.

        Args:
            role: A role of the model, ``"encoder"``, ``"decoder"`` or ``"cross"``; another one is a `KeyError`.
            layer: Index of the layer; None for a component that all layers share, such as an encoding, which gets the
                heads of layer 0.
            members: The members that the component is built for; default: all.
        """
        model = self.config.model
        words = self.vocab_sizes
        generators = self.generators
        if members is not None:
            generators = [self.generators[member] for member in members]
        return BuildContext(
            role=role,
            layers=self.num_layers[role],
            d_model=model.d_model,
            geometry=self.geometries[role][layer or 0],
            generators=generators,
            layer=layer,
            model=model,
            words=words.source if role == "encoder" else words.target,
        )

    def positional(self, role: str) -> Positional:
        """Return a new encoding of a role.

        It is a `PerLayerPositional` if the configuration lists encodings for the layers, and a `PerMemberPositional` of
        one encoding for each group of equal members if members differ.

        Raises:
            HeadToHeadError: If an entry is unknown, a plugin fails in its constructor, or `require_members` refuses an
                encoding.
        """
        parts: list[Positional] = []
        members = []
        for chosen, group in groups(self.configs, "positional", role):
            part = self._positional_of(chosen, self._context(role, None, group))
            require_members(part)
            parts.append(part)
            members.append(group)
        if len(parts) == 1:
            return parts[0]
        return PerMemberPositional(parts, members)

    def _positional_of(self, chosen: EntryConfig, context: BuildContext) -> Positional:
        """Return a new encoding for the members of a context; `PerLayerPositional` if layers are listed.

        Equal entries of a list are one object with its parameters. The caller must check the result by
        `require_members`.

        Args:
            chosen: An entry, or the entries of successive layers.
            context: Of all layers, for the members of the encoding.

        Raises:
            HeadToHeadError: If an entry is unknown, or a plugin fails in its constructor.
        """
        built: dict[str, Positional] = {}
        layers = []
        for entry in chosen.pattern:
            key = entry.model_dump_json()
            if key not in built:
                encoding = find_positional(entry.name)
                built[key] = construct(encoding, entry.options, context)
            layers.append(built[key])
        if len(layers) == 1:
            return layers[0]
        return PerLayerPositional(layers)

    def masking(self, role: str) -> Masking:
        """Return the masking of a role, a `PerLayerMasking` if it varies by layer.

        Members with different maskings are grouped in a `PerMemberMasking`.

        Raises:
            HeadToHeadError: If an entry is unknown, a plugin fails in its constructor, or `require_members` refuses a
                masking.
        """
        parts: list[Masking] = []
        members = []
        for chosen, group in groups(self.configs, "masking", role):
            layers = []
            for entry in chosen.pattern:
                masking = construct(find_masking(entry.name), entry.options)
                require_members(masking)
                layers.append(masking)
            part = layers[0]
            if len(layers) > 1:
                part = PerLayerMasking(layers)
            parts.append(part)
            members.append(group)
        if len(parts) == 1:
            return parts[0]
        return PerMemberMasking(parts, members)

    def source_embedding(self) -> StackedEmbedding | None:
        """Return the table of source tokens; None if there is no encoder or the target's table serves both."""
        if "encoder" not in self.num_layers:
            return None
        if self.config.model.tie_embeddings in ("all", "embeddings"):
            return None
        return self.embedding(self.vocab_sizes.source)

    def lm_head(self) -> StackedLinear | None:
        """Return the output projection; None if it is the target embedding."""
        model = self.config.model
        if model.tie_embeddings in ("output", "all"):
            return None
        outputs = [self.vocab_sizes.target]
        return StackedLinear(self.generators, model.d_model, outputs, model.bias, self.init)

    def final_norm(self, role: str) -> nn.Module | SharedModule | None:
        """Return the norm after the last layer of a role; None if the model has none there."""
        if role not in self.num_layers or not self.config.model.final_norm:
            return None
        return self.norm(role, None)

    def embedding(self, rows: int) -> StackedEmbedding:
        """Return a new table of token embeddings."""
        return StackedEmbedding(self.generators, rows, self.config.model.d_model, self.init)

    def dropout(self, kind: str) -> Dropout:
        """Return the next dropout site. Sites are numbered independently of their rates."""
        self._sites += 1
        return Dropout(self.dropout_rng, self._sites, self._thresholds[kind])

    def style(self, role: str, layer: int) -> Attention:
        """Return a new attention style of a layer.

        Raises:
            HeadToHeadError: If the entry is unknown, a plugin fails in its constructor, or `require_members` refuses
                the component.
        """
        chosen = self.config.entry_of_layer("attention", role, layer)
        style = construct(find_attention(chosen.name), chosen.options, self._context(role, layer))
        require_members(style)
        return style

    def attention(self, role: str, layer: int) -> MultiHeadAttention:
        """Return a new attention of a layer. The caller has set ``positionals``, from `positional`.

        Cross-attention is self-attention if a quirk takes its keys from the target.

        Raises:
            HeadToHeadError: If its style is unknown, a plugin fails in its constructor, or `require_members` refuses
                the style.
            UndefinedError: If the style does not support a mechanism of the encoding.
        """
        style = self.style(role, layer)
        positional = self.positionals[role]
        if isinstance(positional, PerLayerPositional):
            positional = positional.of_layer(layer)
        assert isinstance(positional, Positional)
        keys_from_target = role != "cross" or self.key_sides["cross"] == "target"
        return MultiHeadAttention(
            style,
            positional,
            self.mask_value,
            self.dropout("attention"),
            self.config.model.bias,
            self.init,
            is_self_attention=keys_from_target,
        )

    def bounds(self, role: str) -> Iterator[Bound]:
        """Yield the maximum of each positional encoding and attention of a role; entries without one are left out.

        It counts positions, or batch rows for an encoding by row. Encodings of all members and all layers are included.

        Raises:
            HeadToHeadError: If an entry is unknown, or ``limit`` of a plugin fails.
        """
        for family in ("positional", "attention"):
            for group, _ in groups(self.configs, family, role):
                for chosen in group.pattern:
                    entry = find_entry(family, chosen.name).entry
                    assert issubclass(entry, Component)
                    bound = find_bound(entry, chosen.options, family, role)
                    if bound is not None:
                        yield bound

    def share(self, name: str) -> None:
        """Build a module that is used for all layers from now on: "norm" or "feed-forward"; raises as these."""
        module = (self.norm if name == "norm" else self.feed_forward)("decoder", None)
        assert isinstance(module, nn.Module)
        self.shared[name.replace("-", "_")] = module

    def feed_forward(self, role: str, layer: int | None) -> nn.Module | SharedModule:
        """Return a new feed-forward of a layer, or after ``share("feed-forward")`` the single one of the model.

        Raises:
            HeadToHeadError: If the entry is unknown, a plugin fails in its constructor, or `require_members` refuses
                the component.
        """
        if "feed_forward" in self.shared:
            return SharedModule(self.shared["feed_forward"])
        chosen = self.config.entry_of_layer("feed_forward", role, layer)
        network = registered("feed_forward", chosen.name)
        entry = construct(network, chosen.options, self._context(role, layer))
        require_members(entry)
        return StackedFeedForward(entry, self.init, self.dropout("ffn"))

    def norm(self, role: str, layer: int | None) -> nn.Module | SharedModule:
        """Return a new norm, or after ``share("norm")`` the single one of the model.

        Args:
            role: The role of the layer.
            layer: The layer; None for the norm after the last layer.

        Raises:
            HeadToHeadError: If the entry is unknown, a plugin fails in its constructor, or `require_members` refuses
                the component.
        """
        if "norm" in self.shared:
            return SharedModule(self.shared["norm"])
        chosen = self.config.entry_of_layer("norm", role, layer)
        entry: type[Norm] = registered("norm", chosen.name)
        norm = construct(entry, chosen.options, self._context(role, layer))
        require_members(norm)
        return norm

    def branch(self, role: str, layer: int) -> ResidualBlock:
        """Return a residual connection with its norms and its dropout; ``model.norm`` sets where the norms are.

        Raises:
            HeadToHeadError: If the norm is unknown, a plugin fails in its constructor, or `require_members` refuses it.
        """
        place = self.config.model.norm
        post_norm = self.norm(role, layer) if place == "sandwich" else None
        return ResidualBlock(
            self.norm(role, layer), place != "post", post_norm, self.dropout("residual")
        )
