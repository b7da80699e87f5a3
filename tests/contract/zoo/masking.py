"""Masking schemes with a single fault each: the docstring names it, `caught_by` the invariants that detect it."""

import re
from typing import ClassVar

import torch

from headtohead.plugin import Masking, hookimpl
from headtohead_plugins.masking.none import NoMask
from headtohead_plugins.masking.padding import PaddingMask
from headtohead_plugins.masking.padding_causal import PaddingCausal
from headtohead_plugins.masking.prefix import Prefix
from headtohead_plugins.masking.window import Window

CAUSAL = {"hides-future", "hides-padding", "shows-the-rest"}


class PeeksByOne(PaddingCausal):
    """attends to one token too many"""

    found_in = "a leaking mask: 98 % validation accuracy (attention-is-all-you-need-pytorch #19)"
    caught_by = ("mask-properties", "causality", "cached-decoding")

    def mask(self, role, query_positions, key_positions, lengths):
        return super().mask(role, query_positions + 1, key_positions, lengths)


class AttendsToOnePad(PaddingCausal):
    """one position of padding attended"""

    caught_by = ("mask-properties", "pad-content", "batch-of-one")
    role_defaults: ClassVar = {"encoder": "attends-to-one-pad", "cross": "attends-to-one-pad"}

    def mask(self, role, query_positions, key_positions, lengths):
        return PaddingMask.mask(self, role, query_positions, key_positions, lengths + 1)


class AttendsToAllPads(PaddingMask):
    """all padding attended: the mask is lost"""

    found_in = "Keras' English-Spanish example, four times (keras-io #1046, #1254, #1964, #1997)"
    caught_by = ("mask-properties", "pad-content", "pad-columns", "batch-of-one")

    def mask(self, role, query_positions, key_positions, lengths):
        return None


class HidesLastToken(PaddingCausal):
    """the last token is hidden with the padding"""

    caught_by = ("mask-properties",)
    role_defaults: ClassVar = {"encoder": "hides-last-token", "cross": "hides-last-token"}

    def mask(self, role, query_positions, key_positions, lengths):
        return super().mask(role, query_positions, key_positions, (lengths - 1).clamp(min=1))


class MaskedQueries(Masking):
    """mask on the wrong axis: padding queries hidden instead of padding keys"""

    caught_by = ("mask-properties", "pad-content", "pad-columns")
    properties = frozenset({"hides-padding", "shows-the-rest"})

    def mask(self, role, query_positions, key_positions, lengths):
        nonpad = query_positions[None, :, None] < lengths[:, None, None]
        return nonpad.expand(-1, -1, len(key_positions))


class TurnedCausal(PaddingCausal):
    """mask on the wrong axis: the past is hidden"""

    caught_by = ("mask-properties", "causality")

    def mask(self, role, query_positions, key_positions, lengths):
        later = key_positions[None, :] >= query_positions[:, None]
        nonpad = key_positions[None, None, :] < lengths[:, None, None]
        return later.unsqueeze(0) & nonpad


class CausalByRow(PaddingCausal):
    """causal by row number: top-left alignment, wrong in cached decoding"""

    found_in = "scaled_dot_product_attention's is_causal, if used with a cache"
    caught_by = ("mask-steps", "cached-decoding")

    def mask(self, role, query_positions, key_positions, lengths):
        rows = torch.arange(len(query_positions), device=query_positions.device)
        return super().mask(role, rows, key_positions, lengths)


class StrictlyCausal(PaddingCausal):
    """a token does not attend to itself, the first to none"""

    caught_by = ("mask-properties",)

    def mask(self, role, query_positions, key_positions, lengths):
        return super().mask(role, query_positions - 1, key_positions, lengths)


class WideWindow(Window):
    """off by one in a window: one key too many"""

    caught_by = ("mask-definition",)

    def mask(self, role, query_positions, key_positions, lengths):
        wider = self.options.model_copy(update={"width": self.options.width + 1})
        return Window(wider).mask(role, query_positions, key_positions, lengths)


class NarrowWindow(Window):
    """off by one in a window: one key too few"""

    caught_by = ("mask-definition",)

    def mask(self, role, query_positions, key_positions, lengths):
        narrower = self.options.model_copy(update={"width": self.options.width - 1})
        return Window(narrower).mask(role, query_positions, key_positions, lengths)


class OneSidedWindow(Window):
    """the encoder's window looks back only"""

    caught_by = ("mask-definition",)

    def mask(self, role, query_positions, key_positions, lengths):
        return super().mask("decoder", query_positions, key_positions, lengths)


class LongPrefix(Prefix):
    """off by one in a prefix: one key too many"""

    caught_by = ("mask-definition",)

    def mask(self, role, query_positions, key_positions, lengths):
        longer = self.options.model_copy(update={"length": self.options.length + 1})
        return Prefix(longer).mask(role, query_positions, key_positions, lengths)


class CausalCross(PaddingCausal):
    """cross role given a causal mask"""

    caught_by = ("mask-used",)
    role_defaults: ClassVar = {"encoder": "padding"}


class CausalInEveryRole(PaddingMask):
    """a padding mask that is causal in cross-attention too"""

    caught_by = ("mask-properties",)

    def mask(self, role, query_positions, key_positions, lengths):
        mask = super().mask(role, query_positions, key_positions, lengths)
        return mask & (key_positions <= query_positions[:, None]) if role == "cross" else mask


class FloatMask(PaddingCausal):
    """zeros and -inf instead of booleans"""

    caught_by = ("mask-properties",)

    def mask(self, role, query_positions, key_positions, lengths):
        mask = super().mask(role, query_positions, key_positions, lengths)
        return torch.where(mask, 0.0, -torch.inf)


class IntegerMask(PaddingCausal):
    """ones and zeros instead of booleans"""

    caught_by = ("mask-properties",)

    def mask(self, role, query_positions, key_positions, lengths):
        return super().mask(role, query_positions, key_positions, lengths).long()


class InvertedMask(PaddingCausal):
    """True where a key is hidden, as torch.nn.MultiheadAttention has it"""

    found_in = "key_padding_mask of torch.nn against attn_mask of SDPA: opposite meanings"
    caught_by = ("mask-properties",)

    def mask(self, role, query_positions, key_positions, lengths):
        return ~super().mask(role, query_positions, key_positions, lengths)


class KeysFirst(PaddingCausal):
    """[batch, key, query] instead of [batch, query, key]"""

    caught_by = ("mask-properties",)

    def mask(self, role, query_positions, key_positions, lengths):
        return super().mask(role, query_positions, key_positions, lengths).transpose(1, 2)


class NoBatchAxis(NoMask):
    """a mask without an axis for the batch"""

    caught_by = ("mask-properties",)
    role_defaults: ClassVar = {"encoder": "none", "cross": "none"}

    def mask(self, role, query_positions, key_positions, lengths):
        return torch.ones(len(query_positions), len(key_positions), dtype=torch.bool)


class LongestLength(PaddingCausal):
    """the longest sentence's length for all sentences"""

    caught_by = ("mask-properties", "mask-steps")
    role_defaults: ClassVar = {"encoder": "longest-length", "cross": "longest-length"}

    def mask(self, role, query_positions, key_positions, lengths):
        return PaddingMask.mask(self, role, query_positions, key_positions, lengths.max().expand_as(lengths))


class FirstLength(PaddingMask):
    """the first sentence's length for all sentences"""

    caught_by = ("mask-properties", "pad-content")

    def mask(self, role, query_positions, key_positions, lengths):
        return super().mask(role, query_positions, key_positions, lengths[:1].expand_as(lengths))


class LeftPadding(PaddingMask):
    """assumes padding on the left"""

    caught_by = ("mask-properties", "pad-content")

    def mask(self, role, query_positions, key_positions, lengths):
        pads = len(key_positions) - lengths
        nonpad = key_positions[None, None, :] >= pads[:, None, None]
        return nonpad.expand(-1, len(query_positions), -1)


class CachedByShape(PaddingMask):
    """mask cached by shape, whatever the lengths"""

    caught_by = ("stateless", "batch-of-one")

    def mask(self, role, query_positions, key_positions, lengths):
        known = self.__dict__.setdefault("known", {})
        key = (len(query_positions), len(key_positions), len(lengths), lengths.device)
        if key not in known:
            known[key] = super().mask(role, query_positions, key_positions, lengths)
        return known[key]


class FalseProperty(PaddingMask):
    """declares hides-future and shows the future"""

    caught_by = ("mask-properties", "causality")
    properties = frozenset(CAUSAL)


class RandomMask(PaddingMask):
    """keys hidden at random, also in evaluation"""

    caught_by = ("determinism", "mask-properties")

    def mask(self, role, query_positions, key_positions, lengths):
        mask = super().mask(role, query_positions, key_positions, lengths)
        lucky = torch.rand(mask.shape, device=mask.device) < 0.9
        return mask & (lucky | (key_positions == 0))


class LeftBehind(PaddingCausal):
    """mask created on the CPU, whatever the device"""

    caught_by = ("any-device",)

    def mask(self, role, query_positions, key_positions, lengths):
        mask = super().mask(role, query_positions, key_positions, lengths)
        positions = torch.arange(len(key_positions))
        return mask & (positions >= 0)


class OtherDefinition(PaddingMask):
    """may_attend differs from the mask"""

    caught_by = ("mask-definition",)

    def may_attend(self, role, query, key, length):
        return key <= length


@hookimpl
def register_maskings():
    return {
        re.sub("(?<!^)(?=[A-Z])", "-", entry.__name__).lower(): entry
        for entry in list(globals().values())
        if isinstance(entry, type) and "caught_by" in vars(entry)
    }
