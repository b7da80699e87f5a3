"""headtohead's side: a stack of one member; the other sides use its weights and batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from sizes import DROPOUT, PAD, Size
from torch import Tensor
from turns import Step

from headtohead.config.builder import resolve
from headtohead.data import cache_root, prepare
from headtohead.training.loop import StackTraining

Batches = Iterator[tuple[Tensor, Tensor, int]]
"""Source and target ids, ``[row, time]``, padded with 0, and the number of predicted tokens."""

Pairs = list[tuple[list[int], list[int]]]


def start(
    size: Size, file: Path, seed: int, precision: str = "float32", dropout: float = DROPOUT
) -> StackTraining:
    """Return a training of the Transformer of the paper, with torch's Adam."""
    config = resolve(
        {
            "data": {
                "dataset": "tatoeba",
                "pair": "eng-spa",
                "file": str(file.resolve()),
                **size.data,
            },
            "model": {
                "d_model": size.d_model,
                "heads": size.heads,
                "layers": size.layers,
                "d_ff": size.d_ff,
                "norm": "post",
                "dropout_embedding": dropout,
                "dropout_residual": dropout,
                "dropout_attention": 0.0,
                "dropout_ffn": 0.0,
            },
            "train": {
                "steps": 10**6,
                "schedule": "constant",
                "warmup_steps": 0,
                "lr": size.lr,
                "clip_norm": None,
                "optimizer": "adam",
                "betas": [0.9, 0.999],
                "eps": 1e-8,
                "batch_tokens": size.batch_tokens,
                "precision": precision,
                "length_buckets": "exact",
            },
        },
    )
    return StackTraining(config, [seed], prepare(config.data, cache_root()), torch.device("cpu"))


def vocabularies(training: StackTraining) -> tuple[int, int]:
    """Return the vocabulary sizes of source and target."""
    return training.model.vocab_sizes.source, training.model.vocab_sizes.target


def pairs_a_step(training: StackTraining) -> int:
    return round(len(training.splits["train"]) / training.batches.steps_per_epoch)


def padded(training: StackTraining) -> str:
    """Return the share of padding in the batches of an epoch, as text."""
    padding = training.batches.padding()
    return (
        f"{padding['source']:.1%} of the sources and {padding['target']:.1%} of the targets padding"
    )


def own_step(training: StackTraining) -> Step:
    """Return a step of headtohead's own loop."""
    batches = training._batches()

    def step() -> tuple[Tensor, int]:
        cut = next(batches)
        before = training.loss_sums.clone()
        training._step(cut)
        return (training.loss_sums - before)[0], cut.shape.num_target_tokens

    return step


def batches(training: StackTraining) -> Batches:
    """Yield headtohead's batches in order, from the first."""
    split = training.splits["train"]
    seed = training.progress.members[0].seed
    for epoch in range(10**6):
        for rows, source_time, target_time in training.batches.of_epoch([seed], epoch, 0):
            batch = split.batch(rows, source_time, target_time)
            written = batch.labels[0]
            target = torch.cat([batch.decoder_input_ids[0, :, :1], written.clamp(min=PAD)], dim=1)
            yield batch.source[0], target, int((written >= 0).sum())


def pairs(training: StackTraining) -> Pairs:
    """Return the training pairs as lists of ids, boundary tokens included."""
    split = training.splits["train"]
    lengths = zip(split.source_lengths.tolist(), split.target_lengths.tolist(), strict=True)
    sources, targets = split.source.tolist(), split.target.tolist()
    return [
        (source[:read], [decoder_input_ids[0], *labels[:written]])
        for source, (decoder_input_ids, labels), (read, written) in zip(
            sources, targets, lengths, strict=True
        )
    ]
