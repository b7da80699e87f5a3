"""The side JoeyNMT, in a separate process, since its requirements differ from headtohead's.

Settings, weights and batches are passed in a folder; then each line on the input requests a turn.
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
    **{f"encoder.attention.{letter}": f"src_src_att.{letter}_layer" for letter in "qkv"},
    **{f"decoder.attention.{letter}": f"trg_trg_att.{letter}_layer" for letter in "qkv"},
    **{f"cross.{letter}": f"src_trg_att.{letter}_layer" for letter in "qkv"},
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
    """JoeyNMT's training loop on headtohead's weights and batches.

    Args:
        python: An interpreter that can import joeynmt.
        size: Size of the model.
        words: Vocabulary sizes of source and target.
        weights: Initial weights.
        batches: Training batches in order.
        precision: ``float32`` or ``float64``.
        dropout: Dropout rate of residuals and embeddings.
        threads: Number of threads of the process.

    Raises:
        ImportError: The process does not start.
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
        settings = dataclasses.asdict(size) | {
            "words": words,
            "precision": precision,
            "dropout": dropout,
            "threads": threads,
            "pad": PAD,
            "sos": SOS,
            "eos": EOS,
        }
        home = Path(self.folder.name)
        (home / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        torch.save({NAMES.peer_name(name): value for name, value in weights.items()}, home / "weights.pt")
        torch.save([(source, target) for source, target, _ in batches], home / "batches.pt")
        self.errors = (home / "errors.txt").open("w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [python, WORKER, home], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )
        try:
            self._response()
        except RuntimeError as error:
            raise ImportError(str(error)) from error

    def __call__(self, steps: int) -> Turned:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return Turned(**json.loads(self._response()))

    def _response(self) -> str:
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
