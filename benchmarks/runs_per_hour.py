"""Runs per hour of a stack, of one process per run and of torch.vmap, from the same weights, on the same batches.

    git clone https://github.com/karpathy/nanoGPT && git -C nanoGPT checkout 3adf61e
    git clone https://github.com/HazyResearch/zoology && git -C zoology checkout d88d6f5
    python benchmarks/runs_per_hour.py nanogpt --nanogpt nanoGPT --text tinyshakespeare.txt.xz
    python benchmarks/runs_per_hour.py mqar --zoology zoology
    python benchmarks/runs_per_hour.py notebook-1

Two processes with one thread each measure at the same time. In each, three sides alternate, and medians of processor
time are compared: a stack; a single run of the other project's model in its own loop (nanoGPT, Zoology, plain.py);
torch.vmap over that model with the weights of all runs, with fused AdamW. The losses are those of the first run,
over the last fifth of the steps; ``--steps 2000`` compares final losses.

With ``--device cuda``, a single process measures wall-clock time. In bfloat16, the other sides use autocast there, and
float32 on a CPU, as nanoGPT's train.py does; ``--compile`` compiles nanoGPT's model, its default on a GPU.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from plain import PlainTraining
from stacks import SIZES, batch_spec, stack_training, synchronise
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from headtohead.config.builder import resolve
from headtohead.config.yaml_text import parse
from headtohead.data import cache_root, prepare
from headtohead.planning.schedule import learning_rate
from headtohead.training.loop import StackTraining
from headtohead.training.memory import keep_freed_memory

PROCESSES, PARTS = 2, 5
GPT = """
data: {{dataset: text, file: "{text}", block: {block}}}
positional: {{name: learned, max_length: {block}}}
masking: causal
feed_forward: gelu
model: {{layers: {layers}, heads: {heads}, d_model: {width}, d_ff: 4x, dropout: 0.0, bias: false,
  tie_embeddings: output, embedding_scale: one}}
train: {{steps: 2000, batch_size: {batch}, lr: 1.0e-3, schedule: {{name: cosine, final_lr: 1.0e-4}}, warmup_steps: 100,
  betas: [0.9, 0.99], eps: 1.0e-8, weight_decay: 0.1, decay: matrices, clip_norm: 1.0, precision: {precision}}}
"""
MQAR = """
data: {{dataset: mqar, levels: [64x4], alphabet: 8192, size: 10000, valid: 100, test: 100}}
positional: {{name: learned, max_length: 64}}
masking: causal
model: {{layers: 2, heads: 1, d_model: 64, dropout: 0.0, tie_embeddings: output, embedding_scale: one}}
train: {{steps: 2000, batch_size: 256, lr: 1.0e-3, schedule: constant, warmup_steps: 0, betas: [0.9, 0.999],
  eps: 1.0e-8, weight_decay: 0.1, clip_norm: null, precision: {precision},
  trainable: [positional, embeddings, decoder-attention, norm]}}
"""
Batch = tuple[Tensor, Tensor, Tensor]
"""Sources, decoder inputs and labels ``[.., time]``."""


@dataclass
class Peer:
    """Another implementation: ``build`` returns a model, ``loss`` its loss, ``loop`` the training of a model."""

    build: Callable[[], nn.Module]
    loss: Callable[[Any, Batch], Tensor]
    loop: Callable[[nn.Module], Callable[[Sequence[Batch]], list[float]]]
    names: dict[str, str]
    """Replacements in headtohead's names of parameters, regular expressions, in order."""
    no_label: int = -100


def nanogpt(options: argparse.Namespace, training: StackTraining) -> Peer:
    """Return nanoGPT's model and the loop of its train.py."""
    sys.path.insert(0, str(options.nanogpt))
    from model import GPT, GPTConfig  # type: ignore[import-not-found]

    own, train = training.config.model, training.train
    shape = {
        "n_layer": own.decoder_layers,
        "n_head": own.heads,
        "n_embd": own.d_model,
        "block_size": options.block,
    }
    config = GPTConfig(
        **shape, vocab_size=training.model.vocab_sizes.target, dropout=0.0, bias=False
    )

    def loss(model: Any, batch: Batch) -> Tensor:
        return model(batch[1], batch[2])[1]  # type: ignore[no-any-return]

    def loop(model: Any) -> Callable[[Sequence[Batch]], list[float]]:
        steps = count(1)
        optimizer = model.configure_optimizers(
            train.weight_decay, train.lr, train.betas, training.device.type
        )
        compiled = torch.compile(model) if options.compile else model

        def step(batch: Batch) -> Tensor:
            rate = learning_rate(train, next(steps), training.steps)
            for group in optimizer.param_groups:
                group["lr"] = rate
            with autocast(training):
                value = loss(compiled, batch)
            value.backward()
            nn.utils.clip_grad_norm_(model.parameters(), train.clip_norm or 0.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return value.detach()

        return lambda batches: torch.stack(list(map(step, batches))).tolist()  # type: ignore[no-any-return]

    names = {
        r"decoder\.": "transformer.h.",
        "decoder_norm": "transformer.ln_f",
        "target_embedding": "transformer.wte",
    }
    names |= {
        r"positionals.*": "transformer.wpe.weight",
        r"attention\.queries_keys_values": "attn.c_attn",
    }
    names |= {r"attention\.output": "attn.c_proj", r"feed_forward\.inner": "mlp.c_fc"}
    names |= {
        r"feed_forward\.outer": "mlp.c_proj",
        r"attention_branch\.norm": "ln_1",
        r"\w+_branch\.norm": "ln_2",
    }
    return Peer(lambda: GPT(config), loss, loop, names, no_label=-1)


def zoology(folder: Path, training: StackTraining) -> Peer:
    """Return Zoology's model and ``Trainer``; without its logger, and with three changes without which it fails here.

    Its embeddings require a GPU, its model returns no logits by default, and ``fit`` requires test data.
    """
    sys.path.insert(0, str(folder))
    from zoology import model as its_model  # type: ignore[import-not-found]
    from zoology.config import ModelConfig, ModuleConfig  # type: ignore[import-not-found]
    from zoology.train import Trainer  # type: ignore[import-not-found]

    its_model.TokenEmbeddings = partial(its_model.TokenEmbeddings, device="cpu")
    own, train = training.config.model, training.train
    shape = {
        "d_model": own.d_model,
        "n_layers": own.decoder_layers,
        "vocab_size": training.model.vocab_sizes.target,
    }
    attention = ModuleConfig(name="zoology.mixers.attention.MHA", kwargs={"num_heads": own.heads})
    mixers = {"sequence_mixer": attention, "state_mixer": ModuleConfig(name="torch.nn.Identity")}
    for layer in training.model.decoder:
        layer.feed_forward = nn.Identity()  # as Zoology's

    def build() -> nn.Module:
        model = its_model.LanguageModel(ModelConfig(**shape, **mixers, embed_dropout=0.0))
        model.forward = partial(model.forward, return_embeddings=False)
        return model  # type: ignore[no-any-return]

    def loop(model: nn.Module) -> Callable[[Sequence[Batch]], list[float]]:
        losses: list[float] = []
        logger = SimpleNamespace(log=lambda record: losses.append(record["train/loss"]))
        settings = {
            "learning_rate": train.lr,
            "weight_decay": train.weight_decay,
            "device": "cpu",
            "logger": logger,
        }
        trainer = Trainer(model, [], [], max_epochs=0, **settings)
        trainer.fit()

        def train_batches(batches: Sequence[Batch]) -> list[float]:
            losses.clear()
            trainer.train_dataloader = [(inputs, labels, None) for _, inputs, labels in batches]
            trainer.train_epoch(0)
            return list(losses)

        return train_batches

    def loss(model: Any, batch: Batch) -> Tensor:
        return functional.cross_entropy(model(batch[1]).flatten(0, 1), batch[2].flatten())

    names = {r"decoder\.": "backbone.layers.", "decoder_norm": "backbone.ln_f"}
    names |= {r"positionals.*": "position_embeddings.weight", "target_embedding": "word_embeddings"}
    names |= {"(?=word|position)": "backbone.embeddings."}
    names |= {
        r"attention\.queries_keys_values": "sequence_mixer.Wqkv",
        r"attention\.output": "sequence_mixer.out_proj",
    }
    names |= {r"attention_branch\.norm": "norm1", r"feed_forward_branch\.norm": "norm2"}
    return Peer(build, loss, loop, names)


def plain(training: StackTraining) -> Peer:
    """Return the model and loop of plain.py at notebook 1's size."""
    its = PlainTraining(SIZES[0], training.device)

    def loss(model: Any, batch: Batch) -> Tensor:
        return its.loss(model(*batch[:2]).flatten(0, 1), batch[2].flatten())  # type: ignore[no-any-return]

    def loop(model: nn.Module) -> Callable[[Sequence[Batch]], list[float]]:
        its.model.load_state_dict(model.state_dict())
        return (
            lambda batches: torch.stack(  # type: ignore[no-any-return]
                [
                    its.step(source, torch.cat([inputs[:, :1], labels], 1))
                    for source, inputs, labels in batches
                ]
            ).tolist()
        )

    return Peer(
        lambda: PlainTraining(SIZES[0], training.device).model,
        loss,
        loop,
        {r"_branch\.norm": "_norm"},
        0,
    )


def autocast(training: StackTraining) -> torch.autocast:
    """Return the context in which the other sides compute."""
    uses_bfloat16 = training.train.precision == "bfloat16" and training.device.type == "cuda"
    return torch.autocast(training.device.type, torch.bfloat16, enabled=uses_bfloat16)


@torch.no_grad()
def copy_weights(ours: StackTraining, member: int, peer: Peer) -> nn.Module:
    """Return a model of the peer with the weights of a member."""
    model = peer.build().to(ours.device)
    theirs = dict(model.named_parameters())
    for name, parameter in ours.model.named_parameters():
        if not parameter.requires_grad:
            continue
        linear = name.endswith("weight") and "norm" not in name and "embedding" not in name
        for pattern, replacement in peer.names.items():
            name = re.sub(pattern, replacement, name, count=1)
        value, other = parameter[member], theirs.pop(name)
        other.copy_((value.T if linear else value).reshape(other.shape))
    assert not theirs, theirs.keys()
    return model


def vmapped(
    models: Sequence[nn.Module], peer: Peer, training: StackTraining
) -> Callable[[Batch], Tensor]:
    """Return a training step of all models by torch.vmap; it returns the losses, ``[model]``."""
    parameters, _ = stack_module_state(list(models))
    train, steps = training.train, count(1)
    settings = {
        "lr": train.lr,
        "betas": train.betas,
        "eps": train.eps,
        "weight_decay": train.weight_decay,
    }
    vectors = [
        own for own in parameters.values() if train.decay == "matrices" and own.dim() == 2
    ]  # [run, size]
    others = [own for own in parameters.values() if all(own is not vector for vector in vectors)]
    groups = [{"params": others}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, fused=True, **settings)  # type: ignore[arg-type]

    def loss(own: dict[str, Tensor], batch: Batch) -> Tensor:
        return peer.loss(lambda *inputs: functional_call(models[0], own, inputs), batch)

    compute = torch.vmap(grad_and_value(loss), randomness="different")

    def step(batch: Batch) -> Tensor:
        # vmap computes the other kernels run by run; without no_grad, torch stores a graph of the gradients.
        with torch.no_grad(), autocast(training), sdpa_kernel(SDPBackend.MATH):
            gradients, losses = compute(parameters, batch)
        if train.clip_norm:
            norms = torch.stack([own.flatten(1).norm(dim=1) for own in gradients.values()]).norm(
                dim=0
            )
            factors = (train.clip_norm / (norms + 1e-6)).clamp(max=1.0)
        for name, gradient in gradients.items():
            if train.clip_norm:
                gradient *= factors.view(-1, *[1] * (gradient.dim() - 1))
            parameters[name].grad = gradient.contiguous()  # fused AdamW does not compare strides
        rate = learning_rate(train, next(steps), training.steps)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        return losses  # type: ignore[no-any-return]

    return step


def measure(options: argparse.Namespace) -> dict[str, tuple[float, float]]:
    """Return for each side the seconds of a step per run, and the first run's mean loss over the last fifth."""
    torch.set_num_threads(1)
    keep_freed_memory()
    seeds, length, device = (
        range(1, 1 + options.runs),
        options.steps // PARTS,
        torch.device(options.device),
    )
    clock = time.process_time if options.device == "cpu" else time.perf_counter
    if options.task == "notebook-1":
        training = stack_training(
            SIZES[0], options.runs, device, train={"precision": options.precision}
        )
        peer = plain(training)
        specs = [batch_spec(training, SIZES[0])] * options.steps
    else:
        text = (MQAR if options.task == "mqar" else GPT).format(**vars(options))
        settings = resolve(parse(text, "recipe")[0])
        training = StackTraining(settings, seeds, prepare(settings.data, cache_root()), device)
        peer = zoology(options.zoology, training) if options.zoology else nanogpt(options, training)
        specs = [spec for spec, _ in zip(training._batches(), range(options.steps), strict=False)]
    models = [copy_weights(training, member, peer) for member in range(options.runs)]
    own = [training.splits["train"].batch(rows, *shape[1:3]) for rows, shape in specs]
    batches = [
        (x.source, x.decoder_input_ids, x.labels.masked_fill(x.labels < 0, peer.no_label))
        for x in own
    ]
    first = [tuple(part[0] for part in batch) for batch in batches]
    vmap, loop = vmapped(models, peer, training), peer.loop(copy_weights(training, 0, peer))

    def stack(part: slice) -> list[float]:
        before = float(training.loss_sums[0])
        for spec in specs[part]:
            training._step(spec)
        return [(float(training.loss_sums[0]) - before) / length]

    sides: dict[str, Callable[[slice], list[float]]] = {
        "stack": stack,
        "alone": lambda part: loop(first[part]),  # type: ignore[arg-type]
        "vmap": lambda part: torch.stack([vmap(batch)[0] for batch in batches[part]]).tolist(),
    }
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    losses: dict[str, list[float]] = {side: [] for side in sides}
    for start in range(0, PARTS * length, length):
        for side, train in sides.items():
            synchronise(device)
            started = clock()
            losses[side] += train(slice(start, start + length))
            runs = 1 if side == "alone" else options.runs
            seconds[side].append((clock() - started) / length / runs)
    last = {side: found[-len(found) // PARTS :] for side, found in losses.items()}
    return {
        side: (statistics.median(seconds[side]), statistics.fmean(last[side])) for side in sides
    }


def main() -> None:
    """Print a row of the table: runs per hour of each side, ratios and losses."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=["nanogpt", "mqar", "notebook-1"])
    parser.add_argument("--nanogpt", type=Path, help="checkout of nanoGPT")
    parser.add_argument("--zoology", type=Path, help="checkout of Zoology")
    parser.add_argument("--text", type=Path, help="tiny Shakespeare")
    sizes = {
        "runs": 3,
        "steps": 50,
        "width": 128,
        "heads": 4,
        "layers": 4,
        "block": 64,
        "batch": 12,
    }
    for name, default in sizes.items():
        parser.add_argument(
            f"--{name}",
            type=int,
            default=default,
            help="in each of the two processes, or of the model",
        )
    parser.add_argument(
        "--precision",
        default="float32",
        help="of headtohead; the other sides train in float32 on a CPU",
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true", help="compile nanoGPT's model")
    options = parser.parse_args()
    processes = PROCESSES if options.device == "cpu" else 1
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        found = pool.map(measure, [options] * processes, chunksize=1)
    mean = {side: statistics.fmean(own[side][0] for own in found) for side in found[0]}
    print(f"load {os.getloadavg()[0]:.1f}, torch {torch.__version__}; {options}")
    for side, seconds in mean.items():
        print(
            f"{side}: {1000 * seconds:.2f} ms per step of a run, {processes * 3600 / seconds / 2000:.0f} runs of 2,000 "
            f"steps per hour, loss {found[0][side][1]:.4f}; the stack is {seconds / mean['stack']:.2f} times as fast"
        )


if __name__ == "__main__":
    main()
