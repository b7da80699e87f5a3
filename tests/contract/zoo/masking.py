"""Maskings with one fault each. The docstring names it; ``caught_by`` who must see it."""

import re
from typing import ClassVar

import torch

from headtohead import Masking, hookimpl
from headtohead_plugins.masking.none import NoMask
from headtohead_plugins.masking.padding import Padding
from headtohead_plugins.masking.padding_causal import PaddingCausal
from headtohead_plugins.masking.prefix import Prefix
from headtohead_plugins.masking.window import Window

CAUSAL = {"hides-future", "hides-padding", "shows-the-rest"}


class PeeksByOne(PaddingCausal):
    """sees one token too many"""

    seen = "a leaking mask: 98 % validation accuracy (attention-is-all-you-need-pytorch #19)"
    caught_by = ("mask-promise", "causality", "cached-decoding")

    def mask(self, role, query_positions, key_positions, lengths):
        return super().mask(role, query_positions + 1, key_positions, lengths)


class ReadsOnePad(PaddingCausal):
    """pads attended: one beyond the length"""

    caught_by = ("mask-promise", "pad-content", "batch-of-one")
    role_defaults: ClassVar = {"encoder": "reads-one-pad", "cross": "reads-one-pad"}

    def mask(self, role, query_positions, key_positions, lengths):
        return Padding.mask(self, role, query_positions, key_positions, lengths + 1)


class ReadsAllPads(Padding):
    """pads attended: the mask is lost"""

    seen = "Keras' English-Spanish example, four times (keras-io #1046, #1254, #1964, #1997)"
    caught_by = ("mask-promise", "pad-content", "pad-columns", "batch-of-one")

    def mask(self, role, query_positions, key_positions, lengths):
        return None


class HidesLastWord(PaddingCausal):
    """the last word is hidden with the padding"""

    caught_by = ("mask-promise",)
    role_defaults: ClassVar = {"encoder": "hides-last-word", "cross": "hides-last-word"}

    def mask(self, role, query_positions, key_positions, lengths):
        return super().mask(role, query_positions, key_positions, (lengths - 1).clamp(min=1))


class MaskedQueries(Masking):
    """mask on the wrong axis: padded queries hidden, padded keys not"""

    caught_by = ("mask-promise", "pad-content", "pad-columns")
    properties = frozenset({"hides-padding", "shows-the-rest"})

    def mask(self, role, query_positions, key_positions, lengths):
        live = query_positions[None, :, None] < lengths[:, None, None]
        return live.expand(-1, -1, len(key_positions))


class TurnedCausal(PaddingCausal):
    """mask on the wrong axis: the past is hidden"""

    caught_by = ("mask-promise", "causality")

    def mask(self, role, query_positions, key_positions, lengths):
        later = key_positions[None, :] >= query_positions[:, None]
        live = key_positions[None, None, :] < lengths[:, None, None]
        return later.unsqueeze(0) & live


class StepBlind(PaddingCausal):
    """causal by row number: top-left alignment, wrong in cached decoding"""

    seen = "scaled_dot_product_attention's is_causal, if used with a cache"
    caught_by = ("mask-steps", "cached-decoding")

    def mask(self, role, query_positions, key_positions, lengths):
        rows = torch.arange(len(query_positions), device=query_positions.device)
        return super().mask(role, rows, key_positions, lengths)


class StrictlyCausal(PaddingCausal):
    """a token does not see itself, the first sees nothing"""

    caught_by = ("mask-promise",)

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


class CausalInEveryRole(Padding):
    """a padding mask that is causal in cross-attention too"""

    caught_by = ("mask-promise",)

    def mask(self, role, query_positions, key_positions, lengths):
        kept = super().mask(role, query_positions, key_positions, lengths)
        return kept & (key_positions <= query_positions[:, None]) if role == "cross" else kept


class FloatMask(PaddingCausal):
    """zeros and -inf in place of booleans"""

    caught_by = ("mask-promise",)

    def mask(self, role, query_positions, key_positions, lengths):
        kept = super().mask(role, query_positions, key_positions, lengths)
        return torch.where(kept, 0.0, -torch.inf)


class IntegerMask(PaddingCausal):
    """ones and zeros in place of booleans"""

    caught_by = ("mask-promise",)

    def mask(self, role, query_positions, key_positions, lengths):
        return super().mask(role, query_positions, key_positions, lengths).long()


class InvertedMask(PaddingCausal):
    """True where a key is hidden, as torch.nn.MultiheadAttention has it"""

    seen = "key_padding_mask of torch.nn against attn_mask of SDPA: opposite meanings"
    caught_by = ("mask-promise",)

    def mask(self, role, query_positions, key_positions, lengths):
        return ~super().mask(role, query_positions, key_positions, lengths)


class KeysFirst(PaddingCausal):
    """[batch, key, query] in place of [batch, query, key]"""

    caught_by = ("mask-promise",)

    def mask(self, role, query_positions, key_positions, lengths):
        return super().mask(role, query_positions, key_positions, lengths).transpose(1, 2)


class NoBatchAxis(NoMask):
    """a mask without an axis for the batch"""

    caught_by = ("mask-promise",)
    role_defaults: ClassVar = {"encoder": "none", "cross": "none"}

    def mask(self, role, query_positions, key_positions, lengths):
        return torch.ones(len(query_positions), len(key_positions), dtype=torch.bool)


class LongestLength(PaddingCausal):
    """the longest sentence's length for all"""

    caught_by = ("mask-promise", "mask-steps")
    role_defaults: ClassVar = {"encoder": "longest-length", "cross": "longest-length"}

    def mask(self, role, query_positions, key_positions, lengths):
        return Padding.mask(self, role, query_positions, key_positions, lengths.max().expand_as(lengths))


class FirstLength(Padding):
    """the first sentence's length for all"""

    caught_by = ("mask-promise", "pad-content")

    def mask(self, role, query_positions, key_positions, lengths):
        return super().mask(role, query_positions, key_positions, lengths[:1].expand_as(lengths))


class LeftPadding(Padding):
    """takes padding to stand on the left"""

    caught_by = ("mask-promise", "pad-content")

    def mask(self, role, query_positions, key_positions, lengths):
        pads = len(key_positions) - lengths
        live = key_positions[None, None, :] >= pads[:, None, None]
        return live.expand(-1, len(query_positions), -1)


class Remembered(Padding):
    """mask remembered by shape, whatever the lengths are"""

    caught_by = ("stateless", "batch-of-one")

    def mask(self, role, query_positions, key_positions, lengths):
        known = self.__dict__.setdefault("known", {})
        key = (len(query_positions), len(key_positions), len(lengths), lengths.device)
        if key not in known:
            known[key] = super().mask(role, query_positions, key_positions, lengths)
        return known[key]


class EmptyPromise(Padding):
    """promise claimed and not kept: hides the future"""

    caught_by = ("mask-promise", "causality")
    properties = frozenset(CAUSAL)


class RandomMask(Padding):
    """keys hidden at random, in evaluation too"""

    caught_by = ("determinism", "mask-promise")

    def mask(self, role, query_positions, key_positions, lengths):
        kept = super().mask(role, query_positions, key_positions, lengths)
        lucky = torch.rand(kept.shape, device=kept.device) < 0.9
        return kept & (lucky | (key_positions == 0))


class LeftBehind(PaddingCausal):
    """mask made on the CPU whatever the device"""

    caught_by = ("any-device",)

    def mask(self, role, query_positions, key_positions, lengths):
        kept = super().mask(role, query_positions, key_positions, lengths)
        places = torch.arange(len(key_positions))
        return kept & (places >= 0)


class NoDefinition(Padding):
    """a definition of single pairs that says something else"""

    caught_by = ("mask-definition",)

    def may_attend(self, role, query, key, length):
        return key <= length


@hookimpl
def register_maskings():
    return {
        re.sub("(?<!^)(?=[A-Z])", "-", one.__name__).lower(): one
        for one in list(globals().values())
        if isinstance(one, type) and "caught_by" in vars(one)
    }
