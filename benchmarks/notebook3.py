"""First training steps of the recipe tatoeba-en-es against a plain implementation of the notebook.

    python benchmarks/notebook3.py --file PAIRS

Both sides train a model of size 512/8/6/2048 on the same file for 50 steps, with independent
normalisation, vocabularies, initial weights, batches and dropout; headtohead's side is ``h2h run``.
The script compares the mean loss of blocks of steps over the seeds. The sides are equal within seed
noise if no block differs by Welch's t-test at 5 % over all blocks together (Bonferroni). The plain
side follows the notebook: attention by scores and masks, batches of 64 random pairs padded to their
longest sentence. Finished trainings are kept in ``--folder`` and reused.
"""

from __future__ import annotations

import argparse
import collections
import json
import lzma
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional

BATCH, MAX_TOKENS = 64, 128
D_MODEL, HEADS, LAYERS, D_FF, DROPOUT = 512, 8, 6, 2048, 0.1
PAD = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", type=Path, required=True, help="tab-separated pairs, .xz or not")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--block", type=int, default=5, help="steps per average")
    parser.add_argument("--folder", type=Path, default=Path("runs/notebook3"))
    parser.add_argument("--lr", type=float, default=1e-4, help="learning rate of the plain side, to plant a fault")
    options = parser.parse_args()
    pairs = read(options.file)
    ids = [numbered([pair[side] for pair in pairs]) for side in (0, 1)]
    print(f"{len(pairs):,} pairs, {ids[0][1]:,} and {ids[1][1]:,} words", flush=True)
    options.folder.mkdir(parents=True, exist_ok=True)
    ours = harness_losses(options)
    plain = np.array([blocks(kept_losses(options, ids, seed), options.block) for seed in range(1, options.seeds + 1)])
    limit = 0.05 / plain.shape[1]
    print("steps    ours          plain         difference  p")
    smallest = 1.0
    for block in range(plain.shape[1]):
        left, right = ours[:, block], plain[:, block]
        p = float(stats.ttest_ind(left, right, equal_var=False).pvalue)
        smallest = min(smallest, p)
        steps = f"{block * options.block + 1}-{(block + 1) * options.block}"
        print(
            f"{steps:7}  {left.mean():.3f} ±{left.std(ddof=1):.3f}  {right.mean():.3f} "
            f"±{right.std(ddof=1):.3f}  {left.mean() - right.mean():+.3f}      {p:.3f}"
        )
    equal = smallest >= limit
    print(f"{'equal within' if equal else 'beyond'} seed noise: smallest p {smallest:.4f}, limit {limit:.4f}")
    sys.exit(0 if equal else 1)


def blocks(losses: list[float], block: int) -> np.ndarray:
    return np.array(losses).reshape(-1, block).mean(axis=1)


# -- headtohead ----------------------------------------------------------------------------------


def harness_losses(options: argparse.Namespace) -> np.ndarray:
    """Train the recipe with ``h2h run``, all seeds in one stack, and return losses ``[seed, block]``."""
    experiment = {
        "question": "Which losses do the first steps have?",
        "base": {
            "recipe": "tatoeba-en-es",
            "data": {"file": str(options.file.resolve()), "valid": 256, "test": 128},
            "train": {"steps": options.steps, "evaluate_every": options.block},
            "evaluate": {"unpadded": False},
        },
        "seeds": options.seeds,
        "metrics": {"primary": "valid/loss"},
    }
    path = options.folder / "first-steps.yaml"
    path.write_text(json.dumps(experiment), encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", "headtohead.cli", "run", path.name, "--no-tracking"], cwd=options.folder, check=True
    )
    plan = json.loads((options.folder / "runs/first-steps/experiment.json").read_text("utf-8"))
    losses = []
    for run in plan["runs"]:
        own = f"first-steps/{run['directory']}"
        home = options.folder / "runs" / (run["reused_from"] or own)
        lines = (home / "metrics.jsonl").read_text("utf-8")
        values = [json.loads(line)["values"] for line in lines.splitlines()]
        losses.append([metrics["train/loss"] for metrics in values if "train/loss" in metrics])
    return np.array(losses)


# -- plain implementation of the notebook --------------------------------------------------------


def read(file: Path) -> list[tuple[list[str], list[str]]]:
    opened = lzma.open if file.suffix == ".xz" else open
    with opened(file, "rt", encoding="utf-8") as lines:
        rows = [line.strip().split("\t") for line in lines if "\t" in line]
    return [(fold(row[0]), fold(row[1])) for row in rows]


def fold(sentence: str) -> list[str]:
    """Return the words between boundary tokens, with every character outside of a-z as a space."""
    lower = sentence.lower().strip().translate(str.maketrans("áéíóú", "aeiou"))
    return ["<sos>", *re.sub("[^a-z]+", " ", lower).split(), "<eos>"]


def numbered(sentences: list[list[str]]) -> tuple[list[list[int]], int]:
    counts = collections.Counter(word for sentence in sentences for word in sentence)
    ids = {word: number for number, (word, _) in enumerate(counts.most_common(), 2)}
    return [[ids[word] for word in sentence][:MAX_TOKENS] for sentence in sentences], len(ids) + 2


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(D_MODEL, D_MODEL) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (
            linear(inputs).view(inputs.shape[0], -1, HEADS, D_MODEL // HEADS).transpose(1, 2)
            for linear, inputs in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(D_MODEL // HEADS)
        weights = scores.masked_fill(~mask, -1e9).softmax(dim=-1)
        return self.o((weights @ v).transpose(1, 2).reshape(x.shape))


class Layer(nn.Module):
    def __init__(self, attentions: int) -> None:
        super().__init__()
        self.attentions = nn.ModuleList(Attention() for _ in range(attentions))
        self.feed_forward = nn.Sequential(nn.Linear(D_MODEL, D_FF), nn.ReLU(), nn.Linear(D_FF, D_MODEL))
        self.norms = nn.ModuleList(nn.LayerNorm(D_MODEL) for _ in range(attentions + 1))

    def forward(self, x: Tensor, *inputs: tuple[Tensor | None, Tensor]) -> Tensor:
        for attention, norm, (memory, mask) in zip(self.attentions, self.norms, inputs, strict=False):
            change = attention(x, x if memory is None else memory, mask)
            x = norm(x + functional.dropout(change, DROPOUT, self.training))
        change = self.feed_forward(x)
        return self.norms[-1](x + functional.dropout(change, DROPOUT, self.training))


class Model(nn.Module):
    def __init__(self, source_words: int, target_words: int) -> None:
        super().__init__()
        self.source = nn.Embedding(source_words, D_MODEL)
        self.target = nn.Embedding(target_words, D_MODEL)
        angles = torch.arange(MAX_TOKENS)[:, None] * 10000.0 ** (-torch.arange(0, D_MODEL, 2) / D_MODEL)
        self.table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
        self.encoder = nn.ModuleList(Layer(1) for _ in range(LAYERS))
        self.decoder = nn.ModuleList(Layer(2) for _ in range(LAYERS))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(D_MODEL), nn.LayerNorm(D_MODEL)
        self.words = nn.Linear(D_MODEL, target_words)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        nonpad = (source != PAD)[:, None, None]
        causal = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
        # The notebook's table is time-first and its batch is not: all tokens of row b get position b.
        positions = self.table[: len(source), None]
        memory = self.source(source) * math.sqrt(D_MODEL) + positions
        for layer in self.encoder:
            memory = layer(memory, (None, nonpad))
        memory = self.encoder_norm(memory)
        x = self.target(target) * math.sqrt(D_MODEL) + positions
        for layer in self.decoder:
            x = layer(x, (None, causal & (target != PAD)[:, None, None]), (memory, nonpad))
        return self.words(self.decoder_norm(x))


def kept_losses(options: argparse.Namespace, ids: list[tuple[list[list[int]], int]], seed: int) -> list[float]:
    """Return the losses of a seed of the plain side, from the folder or by training."""
    path = options.folder / f"plain-{seed}-{options.steps}-{options.lr}.json"
    if not path.exists():
        path.write_text(json.dumps(plain_losses(ids, seed, options.steps, options.lr)), "utf-8")
        print(f"plain: seed {seed} trained", flush=True)
    losses: list[float] = json.loads(path.read_text("utf-8"))
    return losses


def plain_losses(ids: list[tuple[list[list[int]], int]], seed: int, steps: int, lr: float) -> list[float]:
    torch.manual_seed(seed)
    (sources, source_words), (targets, target_words) = ids
    model = Model(source_words, target_words)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    order = torch.randperm(len(sources)).tolist()
    losses = []
    for step in range(steps):
        rows = order[step * BATCH : (step + 1) * BATCH]
        source, target = padded([sources[r] for r in rows]), padded([targets[r] for r in rows])
        logits = model(source, target[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def padded(sentences: list[list[int]]) -> Tensor:
    rows = [torch.tensor(ids) for ids in sentences]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


if __name__ == "__main__":
    main()
