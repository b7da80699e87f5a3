"""The side x-transformers, as close to the paper's Transformer as its options allow.

Its attentions, norms and logits have no biases. Its embeddings are not scaled and its sinusoids have
a learned scale, so that both are replaced.
"""

from __future__ import annotations

from sizes import DROPOUT, MAX_POSITIONS, PAD, Size
from torch import Tensor, nn
from weights import Weights, copy_weights, sinusoids

BRANCHES = {"encoder": ("attention", "feed_forward"), "decoder": ("attention", "cross", "feed_forward")}
MAPS = {"q": "to_q", "k": "to_k", "v": "to_v", "o": "to_out", "inner": "ff.0.0", "outer": "ff.2"}


class Embeddings(nn.Module):
    """Embeddings times sqrt(d_model)."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(words, width)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids) * self.table.embedding_dim**0.5


class Waves(nn.Module):
    """Sinusoids of the positions of a batch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("waves", sinusoids(MAX_POSITIONS, width))

    def forward(self, ids: Tensor, **options: object) -> Tensor:
        return self.waves[: ids.shape[1]]


class XTransformer(nn.Module):
    """An encoder-decoder of x-transformers, which returns the mean loss."""

    def __init__(self, size: Size, words: tuple[int, int], dropout: float = DROPOUT) -> None:
        super().__init__()
        import x_transformers

        sides = {}
        for side, count in zip(("enc", "dec"), words, strict=True):
            own = {
                "num_tokens": count,
                "depth": size.layers,
                "heads": size.heads,
                "max_seq_len": MAX_POSITIONS,
                "attn_dim_head": size.d_model // size.heads,
                "ff_mult": size.d_ff // size.d_model,
                "ff_custom_activation": nn.ReLU(),
                "attn_flash": True,
                "pre_norm": False,
                "norm_add_unit_offset": False,
                "emb_dropout": dropout,
                "attn_sublayer_dropout": dropout,
                "ff_sublayer_dropout": dropout,
            }
            sides |= {f"{side}_{name}": value for name, value in own.items()}
        self.body = x_transformers.XTransformer(dim=size.d_model, pad_value=PAD, ignore_index=PAD, **sides)
        for wrapper, count in zip((self.body.encoder, self.body.decoder.net), words, strict=True):
            wrapper.token_emb = Embeddings(count, size.d_model)
            wrapper.pos_emb = Waves(size.d_model)

    def load(self, weights: Weights) -> None:
        present = {name: value for name, value in weights.items() if not self.is_missing(name)}
        copy_weights(self, present, self.peer_name)

    @staticmethod
    def is_missing(name: str) -> bool:
        """Return whether the model lacks a parameter: all biases except those of the feed-forward."""
        return name.endswith(".bias") and not name.endswith(("inner.bias", "outer.bias"))

    @staticmethod
    def peer_name(name: str) -> str:
        """Return x-transformers' name of a parameter with a common name."""
        parts = {"encoder": "body.encoder", "decoder": "body.decoder.net"}
        path, _, kind = name.rpartition(".")
        if path in ("source", "target"):
            side = parts["encoder" if path == "source" else "decoder"]
            return f"{side}.token_emb.table.weight"
        if path == "words":
            return "body.decoder.net.to_logits.weight"
        side, number, part = path.split(".", 2)
        branches = BRANCHES[side]
        normed = part.endswith("_norm")
        branch = part.removesuffix("_norm").split(".")[0]
        index = branches.index(branch if branch in branches else "feed_forward")
        layer = f"{parts[side]}.attn_layers.layers.{int(number) * len(branches) + index}"
        if normed:
            return f"{layer}.0.2.gamma"
        return f"{layer}.1.{MAPS[part.split('.')[-1]]}.{kind}"

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.body(source, target, mask=source != PAD)
