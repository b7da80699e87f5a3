"""nanoGPT's recipe for a CPU against nanoGPT: milliseconds per step of one run, and of six seeds.

    git clone https://github.com/karpathy/nanoGPT && git -C nanoGPT checkout 3adf61e154c3fe3fca428ad6bc3818b27a3b8291
    python benchmarks/nanogpt.py --nanogpt nanoGPT --text tinyshakespeare.txt.xz --steps 200

Both sides start from nanoGPT's weights and train on the batches that headtohead's plan gives, so their losses are equal
up to rounding and the gains of norms, which nanoGPT does not decay. Their parts alternate, and the medians of the parts
are compared, in processor time of one thread, which other programs affect less than wall-clock time. Six seeds are two
processes with three members each, against six processes of nanoGPT, two at a time.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import statistics
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from headtohead.config.builder import resolve
from headtohead.config.yaml_text import parse
from headtohead.data import cache_root, prepare
from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig
from headtohead.training.loop import StackTraining

BLOCK, BATCH, LAYERS, HEADS, WIDTH = 64, 12, 4, 4, 128
RATE, LAST_RATE, WARM_UP, BETAS, DECAY, CLIP = 1e-3, 1e-4, 100, (0.9, 0.99), 0.1, 1.0
PARTS = 5

Batches = list[tuple[torch.Tensor, torch.Tensor]]
"""Inputs and labels of each step, ``[row, time]``; -1 is no label."""


RECIPE = f"""
data: {{dataset: text, block: {BLOCK}}}
positional: {{name: learned, max_length: {BLOCK}}}
masking: causal
feed_forward: gelu
model: {{layers: {LAYERS}, heads: {HEADS}, d_model: {WIDTH}, d_ff: 4x, dropout: 0.0, bias: false,
  tie_embeddings: output, embedding_scale: one}}
train: {{batch_size: {BATCH}, lr: {RATE}, final_lr: {LAST_RATE}, warmup_steps: {WARM_UP},
  betas: [{BETAS[0]}, {BETAS[1]}], eps: 1.0e-8, weight_decay: {DECAY}, clip_norm: {CLIP}}}
"""


def config(text: Path, steps: int) -> RunConfig:
    """Return the recipe; the rows of the learned positions are those of a block."""
    return resolve(parse(RECIPE, "recipe")[0] | {"data.file": str(text), "train.steps": steps}, current())


def stack(settings: RunConfig, seeds: list[int]) -> StackTraining:
    """Return the training of a stack."""
    return StackTraining(settings, seeds, prepare(settings.data, cache_root()), torch.device("cpu"))


def peer(folder: Path, vocabulary: int) -> tuple[Any, torch.optim.Optimizer]:
    """Return nanoGPT's model and its optimizer."""
    sys.path.insert(0, str(folder))
    from model import GPT, GPTConfig  # type: ignore[import-not-found]

    torch.manual_seed(1)
    shape = {"n_layer": LAYERS, "n_head": HEADS, "n_embd": WIDTH, "block_size": BLOCK, "vocab_size": vocabulary}
    model = GPT(GPTConfig(**shape, dropout=0.0, bias=False))
    return model, model.configure_optimizers(DECAY, RATE, BETAS, "cpu")


@torch.no_grad()
def copy_weights(ours: StackTraining, model: Any) -> None:
    """Give every member the weights of nanoGPT's model."""
    theirs = {name.removeprefix("transformer."): value for name, value in model.named_parameters()}
    maps = {"queries_keys_values": "attn.c_attn", "output": "attn.c_proj", "inner": "mlp.c_fc", "outer": "mlp.c_proj"}
    norms = {"attention_branch": "ln_1", "feed_forward_branch": "ln_2"}
    for name, parameter in ours.model.named_parameters():
        root, *path = name.split(".")
        if root != "decoder":
            other = "ln_f" if "norm" in name else "wte" if "embedding" in name else "wpe"
        else:
            other = f"h.{path[0]}.{norms[path[1]] if path[-2] == 'norm' else maps[path[-2]]}"
        value = theirs[f"{other}.weight"]
        value = value.T if value.dim() == 2 and other.startswith("h.") else value
        parameter.copy_(value.reshape(parameter.shape[1:]))


def rate(step: int, steps: int) -> float:
    """Return nanoGPT's rate of a step, from 1, with the warm-up of headtohead."""
    if step < WARM_UP:
        return RATE * step / WARM_UP
    return LAST_RATE + 0.5 * (1 + math.cos(math.pi * (step - WARM_UP) / (steps - WARM_UP))) * (RATE - LAST_RATE)


def their_steps(model: Any, optimizer: Any, batches: Batches, first: int, steps: int) -> list[float]:
    """Train nanoGPT's model by the loop of its train.py, and return the losses."""
    losses = []
    for number, (inputs, labels) in enumerate(batches, first):
        for group in optimizer.param_groups:
            group["lr"] = rate(number, steps)
        _, loss = model(inputs, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


def batches_of(training: StackTraining, first: int, count: int) -> Batches:
    """Return inputs and labels of the first member from step ``first``, from 0, in nanoGPT's form."""
    split, found = training.splits["train"], []
    epoch, start = divmod(first, training.plan.steps_per_epoch)
    for rows, *times in islice(training.plan.batches([1], epoch, start), count):
        batch = split.batch(rows, *times)
        found.append((batch.decoder_input_ids[0], batch.labels[0].masked_fill(batch.labels[0] < 0, -1)))
    return found


def ours_alone(text: Path, seeds: list[int], steps: int) -> float:
    """Train a stack in this process with one thread, and return the seconds of the steps."""
    torch.set_num_threads(1)
    training = stack(config(text, steps), seeds)
    started, batches = time.process_time(), training._batches()
    for _ in range(steps):
        training._step(next(batches))
    return time.process_time() - started


def theirs_alone(text: Path, folder: Path, steps: int) -> float:
    """Train nanoGPT in this process with one thread, and return the seconds of the steps."""
    torch.set_num_threads(1)
    training = stack(config(text, steps), [1])
    model, optimizer = peer(folder, training.model.vocab_sizes.target)
    batches = batches_of(training, 0, steps)
    started = time.process_time()
    their_steps(model, optimizer, batches, 1, steps)
    return time.process_time() - started


def main() -> None:
    """Print the milliseconds per step of both sides, their ratios and the losses."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", type=Path, required=True, help="checkout of nanoGPT")
    parser.add_argument("--text", type=Path, required=True, help="tiny Shakespeare")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    text, folder, steps = options.text.resolve(), options.nanogpt.resolve(), options.steps
    torch.set_num_threads(1)
    training = stack(config(text, steps), [1])
    model, optimizer = peer(folder, training.model.vocab_sizes.target)
    copy_weights(training, model)
    seconds: dict[str, list[float]] = {"headtohead": [], "nanoGPT": []}
    losses: list[float] = []
    own, length = training._batches(), steps // PARTS
    for part in range(PARTS):
        started = time.process_time()
        for _ in range(length):
            training._step(next(own))
        seconds["headtohead"].append(time.process_time() - started)
        batches = batches_of(training, part * length, length)
        started = time.process_time()
        losses += their_steps(model, optimizer, batches, 1 + part * length, steps)
        seconds["nanoGPT"].append(time.process_time() - started)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, torch {torch.__version__}, {steps} steps")
    ms = {name: 1000 * statistics.median(parts) / length for name, parts in seconds.items()}
    mean = float(training.loss_sums[0]) / (PARTS * length)
    print(f"mean training loss: headtohead {mean:.4f}, nanoGPT {statistics.fmean(losses):.4f}")
    print(f"one run, ms per step: {ms}; ratio {ms['nanoGPT'] / ms['headtohead']:.2f}")
    with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
        ours = pool.starmap(ours_alone, [(text, [1, 2, 3], steps), (text, [4, 5, 6], steps)])
        theirs = pool.starmap(theirs_alone, [(text, folder, steps)] * 6, chunksize=1)
    both = [1000 * sum(found) / 2 / steps for found in (ours, theirs)]
    print(f"six seeds, two processes, ms per step of all: {both}; ratio {both[1] / both[0]:.2f}")


if __name__ == "__main__":
    main()
