"""Masking schemes with a single fault each: the docstring names it, `caught_by` the invariants that detect it."""

from typing import ClassVar

import torch

from contract.zoo.planted import fault
from headtohead.plugin import Masking
from headtohead_plugins.masking.none import NoMask
from headtohead_plugins.masking.padding import PaddingMask
from headtohead_plugins.masking.padding_causal import PaddingCausal
from headtohead_plugins.masking.prefix import Prefix
from headtohead_plugins.masking.window import Window

CAUSAL = {"hides-future", "hides-padding", "shows-the-rest"}


@fault(
    PaddingCausal,
    "mask",
    "mask-properties causality cached-decoding",
    found_in="a leaking mask: 98 % validation accuracy (attention-is-all-you-need-pytorch #19)",
)
def peeks_by_one(self, role, query_positions, key_positions, lengths):
    """attends to one token too many"""
    return PaddingCausal.mask(self, role, query_positions + 1, key_positions, lengths)


@fault(
    PaddingCausal,
    "mask",
    "mask-properties pad-content batch-of-one",
    role_defaults={"encoder": "attends-to-one-pad", "cross": "attends-to-one-pad"},
)
def attends_to_one_pad(self, role, query_positions, key_positions, lengths):
    """one position of padding attended"""
    return PaddingMask.mask(self, role, query_positions, key_positions, lengths + 1)


@fault(
    PaddingMask,
    "mask",
    "mask-properties pad-content pad-columns batch-of-one",
    found_in="Keras' English-Spanish example, four times (keras-io #1046, #1254, #1964, #1997)",
)
def attends_to_all_pads(self, role, query_positions, key_positions, lengths):
    """all padding attended: the mask is lost"""
    return


@fault(
    PaddingCausal,
    "mask",
    "mask-properties",
    role_defaults={"encoder": "hides-last-token", "cross": "hides-last-token"},
)
def hides_last_token(self, role, query_positions, key_positions, lengths):
    """the last token is hidden with the padding"""
    return PaddingCausal.mask(
        self, role, query_positions, key_positions, (lengths - 1).clamp(min=1)
    )


@fault(
    Masking,
    "mask",
    "mask-properties pad-content pad-columns",
    properties=frozenset({"hides-padding", "shows-the-rest"}),
)
def masked_queries(self, role, query_positions, key_positions, lengths):
    """mask on the wrong axis: padding queries hidden instead of padding keys"""
    nonpad = query_positions[None, :, None] < lengths[:, None, None]
    return nonpad.expand(-1, -1, len(key_positions))


@fault(PaddingCausal, "mask", "mask-properties causality")
def turned_causal(self, role, query_positions, key_positions, lengths):
    """mask on the wrong axis: the past is hidden"""
    later = key_positions[None, :] >= query_positions[:, None]
    nonpad = key_positions[None, None, :] < lengths[:, None, None]
    return later.unsqueeze(0) & nonpad


@fault(
    PaddingCausal,
    "mask",
    "mask-steps cached-decoding",
    found_in="scaled_dot_product_attention's is_causal, if used with a cache",
)
def causal_by_row(self, role, query_positions, key_positions, lengths):
    """causal by row number: top-left alignment, wrong in cached decoding"""
    rows = torch.arange(len(query_positions), device=query_positions.device)
    return PaddingCausal.mask(self, role, rows, key_positions, lengths)


@fault(PaddingCausal, "mask", "mask-properties")
def strictly_causal(self, role, query_positions, key_positions, lengths):
    """a token does not attend to itself, the first to none"""
    return PaddingCausal.mask(self, role, query_positions - 1, key_positions, lengths)


@fault(Window, "mask", "mask-definition")
def wide_window(self, role, query_positions, key_positions, lengths):
    """off by one in a window: one key too many"""
    wider = self.options.model_copy(update={"width": self.options.width + 1})
    return Window(wider).mask(role, query_positions, key_positions, lengths)


@fault(Window, "mask", "mask-definition")
def narrow_window(self, role, query_positions, key_positions, lengths):
    """off by one in a window: one key too few"""
    narrower = self.options.model_copy(update={"width": self.options.width - 1})
    return Window(narrower).mask(role, query_positions, key_positions, lengths)


@fault(Window, "mask", "mask-definition")
def one_sided_window(self, role, query_positions, key_positions, lengths):
    """the encoder's window looks back only"""
    return Window.mask(self, "decoder", query_positions, key_positions, lengths)


@fault(Prefix, "mask", "mask-definition")
def long_prefix(self, role, query_positions, key_positions, lengths):
    """off by one in a prefix: one key too many"""
    longer = self.options.model_copy(update={"length": self.options.length + 1})
    return Prefix(longer).mask(role, query_positions, key_positions, lengths)


class CausalCross(PaddingCausal):
    """cross role given a causal mask"""

    caught_by = ("mask-used",)
    role_defaults: ClassVar = {"encoder": "padding"}


@fault(PaddingMask, "mask", "mask-properties")
def causal_in_every_role(self, role, query_positions, key_positions, lengths):
    """a padding mask that is causal in cross-attention too"""
    mask = PaddingMask.mask(self, role, query_positions, key_positions, lengths)
    return mask & (key_positions <= query_positions[:, None]) if role == "cross" else mask


@fault(PaddingCausal, "mask", "mask-properties")
def float_mask(self, role, query_positions, key_positions, lengths):
    """zeros and -inf instead of booleans"""
    mask = PaddingCausal.mask(self, role, query_positions, key_positions, lengths)
    return torch.where(mask, 0.0, -torch.inf)


@fault(PaddingCausal, "mask", "mask-properties")
def integer_mask(self, role, query_positions, key_positions, lengths):
    """ones and zeros instead of booleans"""
    return PaddingCausal.mask(self, role, query_positions, key_positions, lengths).long()


@fault(
    PaddingCausal,
    "mask",
    "mask-properties",
    found_in="key_padding_mask of torch.nn against attn_mask of SDPA: opposite meanings",
)
def inverted_mask(self, role, query_positions, key_positions, lengths):
    """True where a key is hidden, as torch.nn.MultiheadAttention has it"""
    return ~PaddingCausal.mask(self, role, query_positions, key_positions, lengths)


@fault(PaddingCausal, "mask", "mask-properties")
def keys_first(self, role, query_positions, key_positions, lengths):
    """[batch, key, query] instead of [batch, query, key]"""
    return PaddingCausal.mask(self, role, query_positions, key_positions, lengths).transpose(1, 2)


@fault(NoMask, "mask", "mask-properties", role_defaults={"encoder": "none", "cross": "none"})
def no_batch_axis(self, role, query_positions, key_positions, lengths):
    """a mask without an axis for the batch"""
    return torch.ones(len(query_positions), len(key_positions), dtype=torch.bool)


@fault(
    PaddingCausal,
    "mask",
    "mask-properties mask-steps",
    role_defaults={"encoder": "longest-length", "cross": "longest-length"},
)
def longest_length(self, role, query_positions, key_positions, lengths):
    """the longest sentence's length for all sentences"""
    return PaddingMask.mask(
        self, role, query_positions, key_positions, lengths.max().expand_as(lengths)
    )


@fault(PaddingMask, "mask", "mask-properties pad-content")
def first_length(self, role, query_positions, key_positions, lengths):
    """the first sentence's length for all sentences"""
    return PaddingMask.mask(
        self, role, query_positions, key_positions, lengths[:1].expand_as(lengths)
    )


@fault(PaddingMask, "mask", "mask-properties pad-content")
def left_padding(self, role, query_positions, key_positions, lengths):
    """assumes padding on the left"""
    pads = len(key_positions) - lengths
    nonpad = key_positions[None, None, :] >= pads[:, None, None]
    return nonpad.expand(-1, len(query_positions), -1)


@fault(PaddingMask, "mask", "stateless batch-of-one")
def cached_by_shape(self, role, query_positions, key_positions, lengths):
    """mask cached by shape, whatever the lengths"""
    known = self.__dict__.setdefault("known", {})
    key = (len(query_positions), len(key_positions), len(lengths), lengths.device)
    if key not in known:
        known[key] = PaddingMask.mask(self, role, query_positions, key_positions, lengths)
    return known[key]


class FalseProperty(PaddingMask):
    """declares hides-future and shows the future"""

    caught_by = ("mask-properties", "causality")
    properties = frozenset(CAUSAL)


@fault(PaddingMask, "mask", "determinism mask-properties")
def random_mask(self, role, query_positions, key_positions, lengths):
    """keys hidden at random, also in evaluation"""
    mask = PaddingMask.mask(self, role, query_positions, key_positions, lengths)
    lucky = torch.rand(mask.shape, device=mask.device) < 0.9
    return mask & (lucky | (key_positions == 0))


@fault(PaddingCausal, "mask", "any-device")
def left_behind(self, role, query_positions, key_positions, lengths):
    """mask created on the CPU, whatever the device"""
    mask = PaddingCausal.mask(self, role, query_positions, key_positions, lengths)
    positions = torch.arange(len(key_positions))
    return mask & (positions >= 0)


@fault(PaddingMask, "may_attend", "mask-definition")
def other_definition(self, role, query, key, length):
    """may_attend differs from the mask"""
    return key <= length
