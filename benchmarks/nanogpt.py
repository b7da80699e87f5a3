"""nanoGPT's recipe for a CPU against nanoGPT: milliseconds per step of one run, and of six seeds.

    git clone https://github.com/karpathy/nanoGPT && git -C nanoGPT checkout 3adf61e154c3fe3fca428ad6bc3818b27a3b8291
    python benchmarks/nanogpt.py --nanogpt nanoGPT --text tinyshakespeare.txt.xz --steps 200

Both sides start from nanoGPT's weights and train on headtohead's batches, so their losses are equal up to rounding and
the gains of norms, which nanoGPT does not decay. Their parts alternate, and medians are compared, in processor time of
one thread. Six seeds are two processes with three members each, against six processes of nanoGPT, two at a time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from headtohead.config.builder import resolve
from headtohead.config.yaml_text import parse
from headtohead.data import cache_root, prepare
from headtohead.planning.schedule import learning_rate
from headtohead.plugins.registry import current
from headtohead.schema.run_config import TrainConfig
from headtohead.training.loop import StackTraining

BLOCK, PARTS = 64, 5
RECIPE = f"""
data: {{dataset: text, block: {BLOCK}}}
positional: {{name: learned, max_length: {BLOCK}}}
masking: causal
feed_forward: gelu
model: {{layers: 4, heads: 4, d_model: 128, d_ff: 4x, dropout: 0.0, bias: false,
  tie_embeddings: output, embedding_scale: one}}
train: {{batch_size: 12, lr: 1.0e-3, final_lr: 1.0e-4, warmup_steps: 100, betas: [0.9, 0.99], eps: 1.0e-8,
  weight_decay: 0.1, clip_norm: 1.0}}
"""
Batches = list[tuple[torch.Tensor, torch.Tensor]]


def stack(text: Path, steps: int, seeds: list[int]) -> StackTraining:
    """Return the training of a stack; the rows of the learned positions are those of a block."""
    torch.set_num_threads(1)
    settings = resolve(parse(RECIPE, "recipe")[0] | {"data.file": str(text), "train.steps": steps}, current())
    return StackTraining(settings, seeds, prepare(settings.data, cache_root()), torch.device("cpu"))


def peer(folder: Path, training: StackTraining) -> tuple[Any, torch.optim.Optimizer]:
    """Return nanoGPT's model and its optimizer."""
    sys.path.insert(0, str(folder))
    from model import GPT, GPTConfig  # type: ignore[import-not-found]

    torch.manual_seed(1)
    own, train = training.config.model, training.train
    shape = {"n_layer": own.decoder_layers, "n_head": own.heads, "n_embd": own.d_model, "block_size": BLOCK}
    model = GPT(GPTConfig(**shape, vocab_size=training.model.vocab_sizes.target, dropout=0.0, bias=False))
    return model, model.configure_optimizers(train.weight_decay, train.lr, train.betas, "cpu")


@torch.no_grad()
def copy_weights(ours: StackTraining, model: Any) -> None:
    """Give every member the weights of nanoGPT's model."""
    theirs = {name.removeprefix("transformer."): value for name, value in model.named_parameters()}
    maps = {"queries_keys_values": "attn.c_attn", "output": "attn.c_proj", "inner": "mlp.c_fc", "outer": "mlp.c_proj"}
    norms = {"attention_branch": "ln_1", "feed_forward_branch": "ln_2"}
    for name, parameter in ours.model.named_parameters():
        root, *path = name.split(".")
        other = "ln_f" if "norm" in name else "wte" if "embedding" in name else "wpe"
        if root == "decoder":
            other = f"h.{path[0]}.{norms[path[1]] if path[-2] == 'norm' else maps[path[-2]]}"
        value = theirs[f"{other}.weight"]
        value = value.T if value.dim() == 2 and other.startswith("h.") else value
        parameter.copy_(value.reshape(parameter.shape[1:]))


def their_steps(model: Any, optimizer: Any, batches: Batches, first: int, train: TrainConfig) -> list[float]:
    """Train nanoGPT's model by the loop of its train.py from step ``first``, and return the losses."""
    losses = []
    for number, (inputs, labels) in enumerate(batches, first):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(train, number, train.steps or 0)
        _, loss = model(inputs, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), train.clip_norm or 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


def batches_of(training: StackTraining, steps: int) -> Batches:
    """Return inputs and labels ``[row, time]`` of the first steps in nanoGPT's form; -1 is no label."""
    split, own = training.splits["train"], training.plan.batches([1], 0)
    found = [split.batch(rows, *times) for _, (rows, *times) in zip(range(steps), own, strict=False)]
    return [(batch.decoder_input_ids[0], batch.labels[0].masked_fill(batch.labels[0] < 0, -1)) for batch in found]


def seconds_alone(text: Path, steps: int, seeds: list[int], folder: Path | None = None) -> float:
    """Train a stack, or nanoGPT if its folder is given, in this process; return the processor time of the steps."""
    training = stack(text, steps, seeds)
    if folder is not None:
        (model, optimizer), batches = peer(folder, training), batches_of(training, steps)
        started = time.process_time()
        their_steps(model, optimizer, batches, 1, training.train)
        return time.process_time() - started
    started, own = time.process_time(), training._batches()
    for _ in range(steps):
        training._step(next(own))
    return time.process_time() - started


def main() -> None:
    """Print the milliseconds per step of both sides, their ratios and the losses."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", type=Path, required=True, help="checkout of nanoGPT")
    parser.add_argument("--text", type=Path, required=True, help="tiny Shakespeare")
    parser.add_argument("--steps", type=int, default=200, help="at most an epoch")
    text, folder, steps = (options := parser.parse_args()).text.resolve(), options.nanogpt.resolve(), options.steps
    training = stack(text, steps, [1])
    model, optimizer = peer(folder, training)
    copy_weights(training, model)
    seconds: dict[str, list[float]] = {"headtohead": [], "nanoGPT": []}
    losses: list[float] = []
    own, batches, length = training._batches(), batches_of(training, steps), steps // PARTS
    for part in range(PARTS):
        started = time.process_time()
        for _ in range(length):
            training._step(next(own))
        seconds["headtohead"].append(time.process_time() - started)
        started, first = time.process_time(), part * length
        losses += their_steps(model, optimizer, batches[first : first + length], 1 + first, training.train)
        seconds["nanoGPT"].append(time.process_time() - started)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, torch {torch.__version__}, {steps} steps")
    ms = {name: 1000 * statistics.median(parts) / length for name, parts in seconds.items()}
    mean = float(training.loss_sums[0]) / (PARTS * length), statistics.fmean(losses)
    print(f"mean training loss: headtohead {mean[0]:.4f}, nanoGPT {mean[1]:.4f}")
    print(f"one run, ms per step: {ms}; ratio {ms['nanoGPT'] / ms['headtohead']:.2f}")
    with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
        ours = pool.starmap(seconds_alone, [(text, steps, seeds) for seeds in ([1, 2, 3], [4, 5, 6])])
        theirs = pool.starmap(seconds_alone, [(text, steps, [1], folder)] * 6, chunksize=1)
    both = [500 * sum(found) / steps for found in (ours, theirs)]
    print(f"six seeds, two processes, ms per step of all: {both}; ratio {both[1] / both[0]:.2f}")


if __name__ == "__main__":
    main()
