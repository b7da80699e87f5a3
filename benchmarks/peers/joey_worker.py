"""Train a JoeyNMT model in JoeyNMT's own loop; run by ``joey.py`` in JoeyNMT's environment.

Reads how many steps a turn has, a line each, and responses with losses, words and seconds. Its model
differs from the paper's in four places, which are made alike: the logits have no bias, the norms
another epsilon, and weights and the feed-forward have the dropout of the sums.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

home = Path(sys.argv[1])
settings = json.loads((home / "settings.json").read_text(encoding="utf-8"))
torch.set_num_threads(settings["threads"])
responses = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)  # JoeyNMT prints to stdout, which must contain responses only

from joeynmt.batch import Batch  # noqa: E402
from joeynmt.config import TrainConfig  # noqa: E402
from joeynmt.model import Model, build_model  # noqa: E402
from joeynmt.training import TrainManager  # noqa: E402
from joeynmt.transformer_layers import MultiHeadedAttention  # noqa: E402

CPU = torch.device("cpu")


class Words:
    """The attributes of a vocabulary that JoeyNMT's model uses."""

    specials: tuple[str, ...] = ()
    lang_tags: tuple[str, ...] = ()
    unk_index, sep_index = 1, None

    def __init__(self, count: int) -> None:
        self.count = count
        self.pad_index, self.bos_index, self.eos_index = settings["pad"], settings["sos"], settings["eos"]

    def __len__(self) -> int:
        return self.count


class Given:
    """A data set of given batches, which waits for a request after each turn."""

    def __init__(self, batches: list[tuple[torch.Tensor, torch.Tensor]], manager: Any) -> None:
        self.batches, self.manager = batches, manager
        self.batch_sampler = SimpleNamespace(set_seed=lambda seed: None, get_state=torch.zeros)
        self.seed = 0

    def make_iter(self, **options: object) -> Given:
        return self

    def __iter__(self) -> Iterator[Batch]:
        waiting = iter(self.batches)
        for line in sys.stdin:
            self.manager.losses, words = [], 0
            began, worked = time.perf_counter(), time.process_time()
            for _ in range(int(line)):
                batch = joey_batch(*next(waiting))
                words += batch.ntokens
                yield batch
            respond(
                {
                    "losses": self.manager.losses,
                    "words": words,
                    "seconds": time.perf_counter() - began,
                    "processor": time.process_time() - worked,
                }
            )


class Manager(TrainManager):
    """Records the loss of each step."""

    losses: list[float]

    def _train_step(self, batch: Batch) -> tuple[float, int]:
        loss, correct = super()._train_step(batch)
        self.losses.append(loss)
        return loss, correct

    def _save_checkpoint(self, new_best: bool, score: float) -> None:
        pass


def joey_batch(source: torch.Tensor, target: torch.Tensor) -> Batch:
    return Batch(
        src=source,
        src_length=(source != settings["pad"]).sum(1),
        src_prompt_mask=None,
        trg=target,
        trg_prompt_mask=None,
        indices=torch.arange(len(source)),
        device=CPU,
        pad_index=settings["pad"],
        eos_index=settings["eos"],
    )


def respond(content: object) -> None:
    responses.write(json.dumps(content) + "\n")
    responses.flush()


def build() -> Model:
    side = {
        "type": "transformer",
        "num_layers": settings["layers"],
        "num_heads": settings["heads"],
        "hidden_size": settings["d_model"],
        "ff_size": settings["d_ff"],
        "dropout": settings["dropout"],
        "layer_norm": "post",
        "embeddings": {"embedding_dim": settings["d_model"], "scale": True},
    }
    model = build_model({"encoder": side, "decoder": side}, *map(Words, settings["words"]))
    model.decoder.output_layer = nn.Linear(settings["d_model"], settings["words"][1])
    for part in model.modules():
        if isinstance(part, nn.LayerNorm):
            part.eps = 1e-5
        elif isinstance(part, MultiHeadedAttention):
            part.dropout.p = 0.0
    for layer in [*model.encoder.layers, *model.decoder.layers]:
        layer.feed_forward.pwff_layer[2].p = 0.0
    model = model.to(getattr(torch, settings["precision"]))
    left = model.load_state_dict(torch.load(home / "weights.pt"), strict=False)
    assert not left.unexpected_keys, left
    assert all(name.endswith("pe.pe") for name in left.missing_keys), left
    model.loss_function = ("crossentropy", 0.0)
    return model


def main() -> None:
    never = 10**9
    train = dict.fromkeys(TrainConfig._fields) | {
        "loss": "crossentropy",
        "normalization": "tokens",
        "label_smoothing": 0.0,
        "optimizer": "adam",
        "adam_betas": (0.9, 0.999),
        "learning_rate": settings["lr"],
        "learning_rate_min": 0.0,
        "weight_decay": 0.0,
        "logging_freq": 100,
        "validation_freq": never,
        "epochs": 1,
        "max_updates": never,
        "batch_size": 1,
        "batch_type": "sentence",
        "batch_multiplier": 1,
        "minimize_metric": True,
        "keep_best_ckpts": 0,
        "scheduling": "exponential",
        "decrease_factor": 1.0,
    }
    manager = Manager(
        rank=0,
        model=build(),
        model_dir=home,
        device=CPU,
        autocast={"device_type": "cpu", "enabled": False},
        train_args=TrainConfig(**train),
    )
    data = Given(torch.load(home / "batches.pt"), manager)
    respond("ready")
    manager.train_and_validate(data, SimpleNamespace())


if __name__ == "__main__":
    main()
