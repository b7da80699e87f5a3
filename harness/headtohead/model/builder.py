"""Builds the parts of a model, with every parameter initialised by its member's generator."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from headtohead.model.attention import MultiHeadAttention
from headtohead.model.dropout import Dropout, DropoutRNG, Rate
from headtohead.model.geometry import Bound, VocabSizes, find_bound, find_geometry
from headtohead.model.layers import (
    Generators,
    Init,
    ResidualBlock,
    SharedModule,
    StackedFeedForward,
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
from headtohead.plugins.component import BuildContext, Component, require_members
from headtohead.plugins.masking import Masking
from headtohead.plugins.norm import Norm
from headtohead.plugins.positional import Positional
from headtohead.plugins.registry import current, registered
from headtohead.schema.run_config import RunConfig


def member_generator(seed: int, purpose: str) -> torch.Generator:
    """Return the random generator of a run for a purpose; purposes have independent streams."""
    digest = hashlib.sha256(f"{purpose}/{seed}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def build_components(config: RunConfig, seeds: Sequence[int]) -> None:
    """Build the components of a variant alone, with their initial values.

    Raises:
        HeadToHeadError: If a tensor has no member axis, or NaN at initialisation.
    """
    build, model = Builder([config] * len(seeds), seeds), config.model
    for role in config.roles:
        build.positional(role)
        for layer in range(model.encoder_layers if role == "encoder" else model.decoder_layers):
            build.style(role, layer)


class Builder:
    """Builds the parts of a model, in the order in which ``Transformer`` requests them."""

    def __init__(self, configs: Sequence[RunConfig], seeds: Sequence[int] | None) -> None:
        self.configs = configs
        self.config = configs[0]
        models = [config.model for config in configs]
        self._rates: dict[str, Rate] = {
            kind: same_or_each([getattr(model, f"dropout_{kind}") for model in models])
            for kind in ("embedding", "attention", "ffn", "residual")
        }
        inits = [model.init for model in models]
        self.init: Init = inits[0] if len(set(inits)) == 1 else inits
        masked = [model.mask_value for model in models]
        self.mask_value: MaskValue = (
            masked[0] if len(set(masked)) == 1 else PerMemberMaskValue(masked)
        )
        self.generators: Generators = (
            [None] if seeds is None else [member_generator(seed, "init") for seed in seeds]
        )
        self.device = torch.device("meta" if seeds is None else "cpu")
        keys = [member_generator(seed, "dropout").initial_seed() for seed in seeds or [0]]
        self.dropout_rng = DropoutRNG(keys, self.device)
        self._sites = 0
        self.positionals: nn.ModuleDict
        self.vocab_sizes = VocabSizes(1, 1)
        self.shared: dict[str, nn.Module] = {}
        self.registry = current()
        self.key_sides = key_sides(self.config)

    def _context(
        self, role: str, layer: int | None, members: Sequence[int] | None = None
    ) -> BuildContext:
        model = self.config.model
        own = range(len(self.generators)) if members is None else members
        return BuildContext(
            role=role,
            layers=model.encoder_layers if role == "encoder" else model.decoder_layers,
            d_model=model.d_model,
            geometry=find_geometry(self.config, role, layer or 0),
            generators=[self.generators[member] for member in own],
            layer=layer,
            model=model,
            words=self.vocab_sizes.source if role == "encoder" else self.vocab_sizes.target,
        )

    def positional(self, role: str) -> Positional:
        """Return the encoding of a role; members with different encodings are grouped."""
        parts, members = [], []
        for chosen, own in groups(self.configs, "positional", role):
            built: dict[
                str, Positional
            ] = {}  # equal entries share their parameters, as all layers do
            for each in chosen.pattern:
                if (key := each.model_dump_json()) not in built:
                    built[key] = self.registry.positional(each.name)(
                        each.options, self._context(role, None, own)
                    )
            layers = [built[each.model_dump_json()] for each in chosen.pattern]
            parts.append(layers[0] if len(layers) == 1 else PerLayerPositional(layers))
            members.append(own)
            require_members(parts[-1])
        return parts[0] if len(parts) == 1 else PerMemberPositional(parts, members)

    def masking(self, role: str) -> Masking:
        """Return the masking of a role; members with different maskings are grouped."""
        parts, members = [], []
        for chosen, own in groups(self.configs, "masking", role):
            layers = [self.registry.masking(each.name)(each.options) for each in chosen.pattern]
            for part in layers:
                require_members(part)
            parts.append(layers[0] if len(layers) == 1 else PerLayerMasking(layers))
            members.append(own)
        return parts[0] if len(parts) == 1 else PerMemberMasking(parts, members)

    def dropout(self, kind: str) -> Dropout:
        """Return the next dropout site. Sites are numbered independently of their rates."""
        self._sites += 1
        return Dropout(self.dropout_rng, self._sites, self._rates[kind])

    def style(self, role: str, layer: int) -> Attention:
        chosen = self.config.attention.role(role).at(layer)
        style = self.registry.attention(chosen.name)(chosen.options, self._context(role, layer))
        require_members(style)
        return style

    def attention(self, role: str, layer: int) -> MultiHeadAttention:
        style = self.style(role, layer)
        positional = self.positionals[role]
        if isinstance(positional, PerLayerPositional):
            positional = positional.of_layer(layer)
        assert isinstance(positional, Positional)
        return MultiHeadAttention(
            style,
            positional,
            self.mask_value,
            self.dropout("attention"),
            self.config.model.bias,
            self.init,
            self_attention=role != "cross" or self.key_sides["cross"] == "target",
        )

    def bounds(self, role: str) -> Iterator[Bound]:
        """Yield the maximum lengths of encodings and attention of a role."""
        for family in ("positional", "attention"):
            for chosen in (
                each for found, _ in groups(self.configs, family, role) for each in found.pattern
            ):
                entry = self.registry.find(family, chosen.name).entry
                assert issubclass(entry, Component)
                if bound := find_bound(entry, chosen.options, family, role):
                    yield bound

    def share(self, name: str) -> None:
        """Build a module that is used for all layers from now on: "norm" or "feed-forward"."""
        module = (self.norm if name == "norm" else self.feed_forward)("decoder", None)
        assert isinstance(module, nn.Module)
        self.shared[name.replace("-", "_")] = module

    def feed_forward(self, role: str, layer: int | None) -> nn.Module | SharedModule:
        if "feed_forward" in self.shared:
            return SharedModule(self.shared["feed_forward"])
        chosen = self.config.feed_forward.role(role).at(layer)
        entry = registered("feed_forward", chosen.name)(chosen.options, self._context(role, layer))
        require_members(entry)
        return StackedFeedForward(entry, self.init, self.dropout("ffn"))

    def norm(self, role: str, layer: int | None) -> nn.Module | SharedModule:
        if "norm" in self.shared:
            return SharedModule(self.shared["norm"])
        chosen = self.config.norm.role(role).at(layer)
        norm: Norm = registered("norm", chosen.name)(chosen.options, self._context(role, layer))
        require_members(norm)
        return norm

    def branch(self, role: str, layer: int) -> ResidualBlock:
        place = self.config.model.norm
        post_norm = self.norm(role, layer) if place == "sandwich" else None
        return ResidualBlock(
            self.norm(role, layer), place != "post", post_norm, self.dropout("residual")
        )
