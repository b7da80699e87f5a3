"""Modules of the notebooks' checkpoints: their layers have the same parts in the same order under other names."""

from __future__ import annotations

from collections.abc import Sequence


def layer_modules(
    encoder: str,
    decoder: str,
    attentions: Sequence[str],
    projections: Sequence[str],
    feed_forward: tuple[str, str, str],
    *,
    decoder_feed_forward: str = "",
    joint_cross: bool = False,
) -> dict[str, str | tuple[str, ...]]:
    """Return ``modules`` of a form of checkpoint for the layers of encoder and decoder.

    Args:
        encoder: Path of an encoder layer, with ``{layer}``.
        decoder: Path of a decoder layer.
        attentions: Names of the attentions of the encoder, the decoder, and from decoder to encoder.
        projections: Names of the projections for queries, keys, values and outputs.
        feed_forward: Name of the feed-forward network and of its two linear layers.
        decoder_feed_forward: Its name in the decoder, if it differs.
        joint_cross: Whether the second attention of the decoder attends to the decoder itself.
    """
    *inputs, output = projections
    name, inner, outer = feed_forward
    modules: dict[str, str | tuple[str, ...]] = {}
    for side, at, own in (("encoder", encoder, attentions[:1]), ("decoder", decoder, attentions[1:])):
        for number, (part, attention) in enumerate(zip(("attention", "cross"), own, strict=False), 1):
            ours, theirs = f"{side}.{{layer}}.{part}", tuple(f"{at}.{attention}.{name}" for name in inputs)
            if part == "attention" or joint_cross:
                modules[f"{ours}.queries_keys_values"] = theirs
            else:
                modules |= {f"{ours}.queries": theirs[0], f"{ours}.keys_values": theirs[1:]}
            modules |= {f"{ours}.output": f"{at}.{attention}.{output}", f"{ours}_branch.norm": f"{at}.norm{number}"}
        ours, theirs_ff = (
            f"{side}.{{layer}}.feed_forward",
            f"{at}.{(side == 'decoder' and decoder_feed_forward) or name}",
        )
        modules |= {f"{ours}.inner": f"{theirs_ff}.{inner}", f"{ours}.outer": f"{theirs_ff}.{outer}"}
        modules[f"{ours}_branch.norm"] = f"{at}.norm{len(own) + 1}"
    return modules
