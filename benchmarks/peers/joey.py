"""The peer JoeyNMT, in a process of its own: its requirements differ from ours.

What it trains, and on what, is laid in a folder; then it is asked for turns, one at a time.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from sizes import DROPOUT, EOS, PAD, SOS, Size
from torch import Tensor
from turns import Turned
from weights import Names, Weights

WORKER = Path(__file__).with_name("joey_worker.py")
LAYERS = {
    **{f"encoder.attention.{one}": f"src_src_att.{one}_layer" for one in "qkv"},
    **{f"decoder.attention.{one}": f"trg_trg_att.{one}_layer" for one in "qkv"},
    **{f"cross.{one}": f"src_trg_att.{one}_layer" for one in "qkv"},
    "encoder.attention.o": "src_src_att.output_layer",
    "encoder.attention_norm": "layer_norm",
    "decoder.attention.o": "trg_trg_att.output_layer",
    "decoder.attention_norm": "x_layer_norm",
    "cross.o": "src_trg_att.output_layer",
    "cross_norm": "dec_layer_norm",
    "inner": "feed_forward.pwff_layer.0",
    "outer": "feed_forward.pwff_layer.3",
    "feed_forward_norm": "feed_forward.layer_norm",
}
NAMES = Names(
    "src_embed.lut", "trg_embed.lut", "decoder.output_layer", "encoder.layers.{}", "decoder.layers.{}", LAYERS
)


class JoeyNMT:
    """Its own training loop on our weights and batches.

    Args:
        python: An interpreter that can import joeynmt.
        size: Of the model.
        words: Of source and target.
        weights: What it begins from.
        batches: What it trains on, in this order.
        precision: ``float32`` or ``float64``.
        dropout: Of sums and embeddings.
        threads: Of its process.

    Raises:
        ImportError: If it does not start.
    """

    def __init__(
        self,
        python: Path,
        size: Size,
        words: tuple[int, int],
        weights: Weights,
        batches: Sequence[tuple[Tensor, Tensor, int]],
        precision: str,
        dropout: float = DROPOUT,
        threads: int = 1,
    ) -> None:
        self.folder = tempfile.TemporaryDirectory()
        told = dataclasses.asdict(size) | {
            "words": words,
            "precision": precision,
            "dropout": dropout,
            "threads": threads,
            "pad": PAD,
            "sos": SOS,
            "eos": EOS,
        }
        home = Path(self.folder.name)
        (home / "told.json").write_text(json.dumps(told), encoding="utf-8")
        torch.save({NAMES.of(name): one for name, one in weights.items()}, home / "weights.pt")
        torch.save([(source, target) for source, target, _ in batches], home / "batches.pt")
        self.errors = (home / "errors.txt").open("w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [python, WORKER, home], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )
        try:
            self._answer()
        except RuntimeError as error:
            raise ImportError(str(error)) from error

    def __call__(self, steps: int) -> Turned:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return Turned(**json.loads(self._answer()))

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            last = self.errors.read().strip().splitlines()[-1:]
            raise RuntimeError(" ".join(["its process ended:", *last]))
        return line

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream is not None:
                stream.close()
        self.folder.cleanup()
