"""Makes the parts of a model, drawing every parameter from its member's generator."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from headtohead.model.attention import MultiHeadAttention
from headtohead.model.blocks import Borrowed, ResidualBlock
from headtohead.model.bounds import Bound, find_bound
from headtohead.model.dropout import Dropout, DropoutRNG, Rate
from headtohead.model.geometry import find_geometry
from headtohead.model.layers import FeedForward, Generators, Init, StackedLayerNorm
from headtohead.model.members import Fill, MixedMasking, MixedPositional, fill_of, groups, same_or_each
from headtohead.plugins.masking import Masking
from headtohead.plugins.positional import BuildContext, Part, Positional
from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig


def member_generator(seed: int, purpose: str) -> torch.Generator:
    """Return the generator of one run for one purpose; no two purposes share a stream."""
    digest = hashlib.sha256(f"{purpose}/{seed}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


class Builder:
    """Makes the parts of one model, drawing every parameter from its member's generator."""

    def __init__(self, configs: Sequence[RunConfig], seeds: Sequence[int] | None) -> None:
        self.configs = configs
        self.config = configs[0]
        models = [config.model for config in configs]
        self._rates: dict[str, Rate] = {
            "embedding": same_or_each([model.dropout_embedding for model in models]),
            "attention": same_or_each([model.dropout_attention for model in models]),
            "ffn": same_or_each([model.dropout_ffn for model in models]),
            "residual": same_or_each([model.dropout_residual for model in models]),
        }
        inits = [one.model.init for one in configs]
        self.init: Init = inits[0] if len(set(inits)) == 1 else inits
        self.fill: Fill = fill_of([one.model.mask_value for one in configs])
        self.generators: Generators = [None] if seeds is None else [member_generator(seed, "init") for seed in seeds]
        self.device = torch.device("meta" if seeds is None else "cpu")
        keys = [member_generator(seed, "dropout").initial_seed() for seed in seeds or [0]]
        self.dropout_rng = DropoutRNG(keys, self.device)
        self._places = 0
        self.positionals: nn.ModuleDict
        self.shared: dict[str, nn.Module] = {}
        self.registry = current()

    def _context(self, role: str, layer: int | None, members: Sequence[int] | None = None) -> BuildContext:
        model = self.config.model
        layers = model.encoder_layers if role == "encoder" else model.decoder_layers
        own = range(len(self.generators)) if members is None else members
        return BuildContext(
            role=role,
            layers=layers,
            d_model=model.d_model,
            geometry=find_geometry(self.config, role),
            generators=[self.generators[one] for one in own],
            layer=layer,
        )

    def positional(self, role: str) -> Positional:
        """Build the encoding of a role, of all members or of each group that has another."""
        found = groups(self.configs, "positional", role)
        parts = []
        for group in found:
            entry = self.registry.positional(group.chosen.name)
            options = entry.Options.model_validate(group.chosen.options)
            parts.append(entry(options, self._context(role, None, group.members)))
        if len(parts) == 1:
            return parts[0]
        return MixedPositional(parts, [one.members for one in found])

    def masking(self, role: str) -> Masking:
        """Build the masking of a role, likewise."""
        found = groups(self.configs, "masking", role)
        parts = []
        for group in found:
            entry = self.registry.masking(group.chosen.name)
            parts.append(entry(entry.Options.model_validate(group.chosen.options)))
        return parts[0] if len(parts) == 1 else MixedMasking(parts, [one.members for one in found])

    def dropout(self, where: str) -> Dropout:
        """Make the next place of dropout; places are counted alike whatever their rates are."""
        self._places += 1
        return Dropout(self.dropout_rng, self._places, self._rates[where])

    def attention(self, role: str, layer: int) -> MultiHeadAttention:
        chosen = self.config.attention.role(role)
        entry = self.registry.attention(chosen.name)
        context = self._context(role, layer)
        style = entry(entry.Options.model_validate(chosen.options), context)
        positional = self.positionals[role]
        assert isinstance(positional, Positional)
        return MultiHeadAttention(
            context,
            style,
            positional,
            self.fill,
            self.dropout("attention"),
            self.config.model.bias,
            self.init,
            self_attention=role != "cross" or self.config.quirks.cross_attention_memory == "decoder",
        )

    def bounds(self, role: str) -> Iterator[Bound]:
        """Yield how many places the encodings and the attention of a role know."""
        for family in ("positional", "attention"):
            for group in groups(self.configs, family, role):
                entry = self.registry.find(family, group.chosen.name).entry
                assert issubclass(entry, Part)
                found = find_bound(entry, group.chosen.options, family, role)
                if found is not None:
                    yield found

    def share(self, name: str) -> None:
        """Make one part that serves every place from now on."""
        makers = {"norm": self._norm, "feed-forward": self._feed_forward}
        self.shared[name.replace("-", "_")] = makers[name]()

    def feed_forward(self) -> FeedForward | Borrowed:
        known = self.shared.get("feed_forward")
        return Borrowed(known) if known is not None else self._feed_forward()

    def norm(self) -> StackedLayerNorm | Borrowed:
        known = self.shared.get("norm")
        return Borrowed(known) if known is not None else self._norm()

    def branch(self) -> ResidualBlock:
        pre = self.config.model.norm == "pre"
        return ResidualBlock(self.norm(), pre, self.dropout("residual"))

    def _feed_forward(self) -> FeedForward:
        model = self.config.model
        return FeedForward(
            self.generators, model.d_model, model.d_ff, model.bias, self.init, model.activation, self.dropout("ffn")
        )

    def _norm(self) -> StackedLayerNorm:
        model = self.config.model
        return StackedLayerNorm(len(self.generators), model.d_model, model.norm_eps, self.device)
