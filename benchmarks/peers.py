"""One run: target tokens per second beside every peer, all in turn in one process.

    python benchmarks/peers.py --file ../shared/data/eng-spa.manythings-2019-07-21.2col.tsv.xz \
        [--size 128/4/2/512] [--blocks 5] [--steps 8] [--device cuda --precision bfloat16]

Every side trains an encoder-decoder of the same sizes on the same pairs with the same vocabulary,
dropout, optimizer and learning rate, in turns of some steps. A step has as many sentences on
average everywhere.

- headtohead: a stack of one, by its own training loop;
- notebook: as the teaching notebooks have it: random batches padded to their longest sentence,
  attention by scores and masks, logits of every position, Adam, ``.item()`` after each step;
- torch.nn.Transformer, x-transformers: in a good loop, on the very batches of headtohead: sentences
  of like lengths together, fused optimizer, the loss read once a block;
- transformers: its Trainer with a Marian model, sentences grouped by length.

Counted are words that are predicted, <eos> among them and padding not.
"""

from __future__ import annotations

import argparse
import math
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from headtohead.data import cache_root, prepare
from headtohead.experiment.resolve import resolve
from headtohead.plugins import current
from headtohead.training.loop import StackTraining
from headtohead.training.memory import keep_freed_memory

PAD = 0
LR = 5e-4


@dataclass(frozen=True)
class Size:
    d_model: int
    heads: int
    layers: int
    d_ff: int
    batch_tokens: int
    words: int | None
    limit: int | None

    @property
    def name(self) -> str:
        return f"{self.d_model}/{self.heads}/{self.layers}/{self.d_ff}"


SIZES = [
    Size(128, 4, 2, 512, 2048, 8000, 60_000),
    Size(512, 8, 6, 2048, 1024, None, None),
]
"""The second is notebook 3's, with every word; its batches have 64 sentences, of like lengths."""

Step = Callable[[], tuple[Tensor | float, int]]
"""Trains one step and returns its mean loss and the target words in it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--size", choices=[one.name for one in SIZES], default=SIZES[0].name)
    parser.add_argument("--blocks", type=int, default=5, help="turns of each side")
    parser.add_argument("--steps", type=int, default=8, help="steps of a turn")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--only", nargs="*", help="sides that are measured beside headtohead")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    size = next(one for one in SIZES if one.name == options.size)
    sides = build(size, options)
    rates, losses = measure(sides, options.blocks, options.steps, torch.device(options.device))
    text = table(size, options, rates, losses)
    print(text)
    if options.out:
        options.out.write_text(text)


def measure(
    sides: dict[str, Step], blocks: int, steps: int, device: torch.device
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return target tokens per second of each turn, and the losses of all steps, by side."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    losses: dict[str, list[float]] = {name: [] for name in sides}
    for block in range(blocks + 1):
        for name, step in sides.items():
            found, words = [], 0
            wait(device)
            began = time.perf_counter()
            for _ in range(steps):
                loss, read = step()
                found.append(loss)
                words += read
            wait(device)
            seconds = time.perf_counter() - began
            losses[name] += [float(one) for one in found]
            if block:
                rates[name].append(words / seconds)
        print(f"turn {block} of {blocks}", flush=True)
    return rates, losses


def table(
    size: Size,
    options: argparse.Namespace,
    rates: dict[str, list[float]],
    losses: dict[str, list[float]],
) -> str:
    own = rates["headtohead"]
    last = options.steps * max(1, options.blocks // 2)
    lines = [
        f"{size.name}, {machine(options)}; {options.blocks} turns of {options.steps} steps, sides "
        f"in turn; `python benchmarks/peers.py --size {size.name}`",
        "",
        "| side | target tokens a second (median) | headtohead is faster by | range over turns | "
        f"loss of the last {last} steps |",
        "|---|---:|---:|---:|---:|",
    ]  # fmt: skip
    for name, found in rates.items():
        ratios = sorted(one / other for one, other in zip(own, found, strict=True))
        loss = statistics.mean(losses[name][-last:])
        spread = statistics.stdev(losses[name][-last:]) / math.sqrt(last)
        lines.append(
            f"| {name} | {statistics.median(found):,.0f} | {statistics.median(ratios):.2f} | "
            f"{ratios[0]:.2f} to {ratios[-1]:.2f} | {loss:.3f} ± {spread:.3f} |"
        )
    return "\n".join(lines) + "\n"


def machine(options: argparse.Namespace) -> str:
    name = (
        torch.cuda.get_device_name()
        if options.device == "cuda"
        else f"{platform.machine()}, {options.threads} threads"
    )
    return f"{name}, torch {torch.__version__}, {options.precision}"


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


# -- sides ---------------------------------------------------------------------------------------


def build(size: Size, options: argparse.Namespace) -> dict[str, Step]:
    device = torch.device(options.device)
    training = ours(size, options, device)
    lengths = training.splits["train"]
    rows = round(len(lengths) / training.plan.steps_per_epoch)
    words = training.model.rows.source, training.model.rows.target
    print(f"{len(lengths):,} pairs, {words[0]:,} and {words[1]:,} words, {rows} pairs a step")
    makers: dict[str, Callable[[], Step]] = {
        "notebook": lambda: notebook(size, words, training, rows, device),
        "torch.nn.Transformer": lambda: good_loop(
            TorchTransformer(size, words), training, device, options.precision
        ),
        "x-transformers": lambda: good_loop(
            x_transformer(size, words), training, device, options.precision
        ),
        "transformers": lambda: trainer(size, words, training, rows, options),
    }
    sides: dict[str, Step] = {"headtohead": ours_step(training)}
    for name, make in makers.items():
        if options.only and name not in options.only:
            continue
        try:
            sides[name] = make()
        except ImportError as error:
            print(f"{name} is left out: {error}")
    return sides


def ours(size: Size, options: argparse.Namespace, device: torch.device) -> StackTraining:
    words = {} if size.words is None else {"max_size": size.words}
    config = resolve(
        {
            "data": {"dataset": "tatoeba", "pair": "eng-spa", "file": str(options.file.resolve()),
                     "limit": size.limit, "vocabulary": words, "max_words": 40},
            "model": {"d_model": size.d_model, "heads": size.heads, "layers": size.layers,
                      "d_ff": size.d_ff, "dropout": 0.1, "dropout_attention": 0.0,
                      "dropout_ffn": 0.0},
            "train": {"steps": 10**6, "schedule": "constant", "lr": LR, "clip_norm": 1.0,
                      "batch_tokens": size.batch_tokens, "precision": options.precision},
        },
        current(),
    )  # fmt: skip
    data = prepare(config.data, cache_root())
    return StackTraining(config, [1], data, device)


def ours_step(training: StackTraining) -> Step:
    batches = training._batches()

    def step() -> tuple[Tensor, int]:
        batch, live = next(batches)
        training.progress.step %= training.plan.steps_per_epoch
        before = training.loss_sums.clone()
        training._step(batch, live)
        return (training.loss_sums - before)[0], live

    return step


def shared_batches(training: StackTraining) -> Iterator[tuple[Tensor, Tensor, int]]:
    """Yield source and target ids of the batches that headtohead has, with padding 0."""
    split = training.splits["train"]
    for epoch in range(10**6):
        for rows, source_time, target_time in training.plan.batches([1], epoch, 0):
            batch = split.batch(rows.to(training.device), source_time, target_time)
            last = batch.writes[0].clamp(min=0)
            target = torch.cat([batch.reads[0, :, :1], last], dim=1)
            yield batch.source[0], target, split.live(rows)


class Positions(nn.Module):
    """Embeddings times sqrt(d_model) plus sinusoids."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(words, width)
        nn.init.normal_(self.table.weight, 0.0, width**-0.5)
        even = torch.arange(0, width, 2)
        angles = torch.arange(256)[:, None] * 10000.0 ** (-even / width)
        self.register_buffer("waves", torch.stack([angles.sin(), angles.cos()], -1).flatten(1))
        self.dropout = nn.Dropout(0.1)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids) * self.table.embedding_dim**0.5
        return self.dropout(x + self.waves[: ids.shape[1]])


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with embeddings and a projection; returns the mean loss."""

    def __init__(self, size: Size, words: tuple[int, int]) -> None:
        super().__init__()
        self.source, self.target = (Positions(one, size.d_model) for one in words)
        self.body = nn.Transformer(
            size.d_model, size.heads, size.layers, size.layers, size.d_ff, 0.1, batch_first=True,
            norm_first=True,
        )  # fmt: skip
        self.words = nn.Linear(size.d_model, words[1])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        reads, writes = target[:, :-1], target[:, 1:]
        pads = source == PAD
        future = nn.Transformer.generate_square_subsequent_mask(
            reads.shape[1], device=reads.device, dtype=torch.bool
        )
        hidden = self.body(
            self.source(source), self.target(reads), tgt_mask=future, tgt_is_causal=True,
            src_key_padding_mask=pads, memory_key_padding_mask=pads,
        )  # fmt: skip
        logits = self.words(hidden)
        return functional.cross_entropy(
            logits.flatten(0, 1).float(), writes.flatten(), ignore_index=PAD
        )


def x_transformer(size: Size, words: tuple[int, int]) -> nn.Module:
    from x_transformers import XTransformer

    sides = {}
    for side, count in zip(("enc", "dec"), words, strict=True):
        own = {"num_tokens": count, "depth": size.layers, "heads": size.heads, "max_seq_len": 256,
               "attn_dim_head": size.d_model // size.heads, "ff_mult": size.d_ff // size.d_model,
               "attn_flash": True, "layer_dropout": 0.0, "attn_dropout": 0.0, "ff_dropout": 0.1,
               "emb_dropout": 0.1, "scaled_sinu_pos_emb": True}  # fmt: skip
        sides |= {f"{side}_{name}": value for name, value in own.items()}
    body = XTransformer(dim=size.d_model, pad_value=PAD, ignore_index=PAD, **sides)

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = body

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            return self.body(source, target, mask=source != PAD)

    return Loss()


def good_loop(
    model: nn.Module, training: StackTraining, device: torch.device, precision: str
) -> Step:
    """A loop as a careful user writes it, on the same batches as headtohead."""
    model = model.to(device).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LR, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0, fused=True
    )
    batches = shared_batches(training)

    def step() -> tuple[Tensor, int]:
        source, target, live = next(batches)
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            loss = model(source, target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach(), live

    return step


class NotebookAttention(nn.Module):
    """Scores, a mask filled with -1e9, a softmax and a product, one after the other."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads, self.width = size.heads, size.d_model // size.heads
        self.q, self.k, self.v, self.o = (nn.Linear(size.d_model, size.d_model) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor, keep: Tensor) -> Tensor:
        q, k, v = (
            projection(one).view(one.shape[0], -1, self.heads, self.width).transpose(1, 2)
            for projection, one in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        scores = (q @ k.transpose(-2, -1) / math.sqrt(self.width)).masked_fill(~keep, -1e9)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape))


class NotebookLayer(nn.Module):
    def __init__(self, size: Size, attentions: int) -> None:
        super().__init__()
        self.attentions = nn.ModuleList(NotebookAttention(size) for _ in range(attentions))
        self.feed_forward = nn.Sequential(
            nn.Linear(size.d_model, size.d_ff), nn.ReLU(), nn.Linear(size.d_ff, size.d_model)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(size.d_model) for _ in range(attentions + 1))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, *reads: tuple[Tensor | None, Tensor]) -> Tensor:
        for attention, norm, (memory, keep) in zip(
            self.attentions, self.norms, reads, strict=False
        ):
            own = x if memory is None else memory
            x = norm(x + self.dropout(attention(x, own, keep)))
        return self.norms[-1](x + self.dropout(self.feed_forward(x)))


class NotebookModel(nn.Module):
    def __init__(self, size: Size, words: tuple[int, int]) -> None:
        super().__init__()
        self.source, self.target = (Positions(one, size.d_model) for one in words)
        self.encoder = nn.ModuleList(NotebookLayer(size, 1) for _ in range(size.layers))
        self.decoder = nn.ModuleList(NotebookLayer(size, 2) for _ in range(size.layers))
        self.words = nn.Linear(size.d_model, words[1])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        live = (source != PAD)[:, None, None, :]
        time_ = target.shape[1]
        future = torch.ones(time_, time_, device=target.device).tril().bool()
        keep = (target != PAD)[:, None, None, :] & future
        memory, x = self.source(source), self.target(target)
        for layer in self.encoder:
            memory = layer(memory, (None, live))
        for layer in self.decoder:
            x = layer(x, (None, keep), (memory, live))
        return self.words(x)


def notebook(
    size: Size, words: tuple[int, int], training: StackTraining, rows: int, device: torch.device
) -> Step:
    """The notebooks' loop: random pairs, padded to the longest, the loss read at each step."""
    model = NotebookModel(size, words).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    pairs = sentences(training)
    generator = torch.Generator().manual_seed(1)

    def step() -> tuple[float, int]:
        chosen = torch.randint(len(pairs), (rows,), generator=generator).tolist()
        source, target = (
            nn.utils.rnn.pad_sequence(
                [torch.tensor(pairs[one][side]) for one in chosen], batch_first=True
            ).to(device)
            for side in (0, 1)
        )
        optimizer.zero_grad()
        logits = model(source, target[:, :-1])
        loss = criterion(logits.reshape(-1, logits.shape[-1]), target[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.item(), sum(len(pairs[one][1]) - 1 for one in chosen)

    return step


def sentences(training: StackTraining) -> list[tuple[list[int], list[int]]]:
    """Return the training pairs as lists of ids, boundary tokens included."""
    split = training.splits["train"]
    found = []
    for row in range(len(split)):
        batch = split.batch(
            torch.tensor([[row]], device=training.device), *split.times(torch.tensor([row]))
        )
        target = [int(batch.reads[0, 0, 0]), *(i for i in batch.writes[0, 0].tolist() if i >= 0)]
        length = int(batch.source_lengths[0, 0])
        found.append((batch.source[0, 0, :length].tolist(), target))
    return found


def trainer(
    size: Size, words: tuple[int, int], training: StackTraining, rows: int,
    options: argparse.Namespace,
) -> Step:  # fmt: skip
    """The transformers library's Trainer; one turn of it is asked for step by step."""
    import tempfile

    import accelerate  # noqa: F401  (the Trainer needs it)
    from transformers import MarianConfig, MarianMTModel, Trainer, TrainerCallback
    from transformers import TrainingArguments as Arguments

    pairs = sentences(training)
    config = MarianConfig(
        vocab_size=words[0], decoder_vocab_size=words[1], d_model=size.d_model,
        encoder_layers=size.layers, decoder_layers=size.layers,
        encoder_attention_heads=size.heads, decoder_attention_heads=size.heads,
        encoder_ffn_dim=size.d_ff, decoder_ffn_dim=size.d_ff, activation_function="relu",
        dropout=0.1, attention_dropout=0.0, activation_dropout=0.0, max_position_embeddings=256,
        pad_token_id=PAD, eos_token_id=3, decoder_start_token_id=2, forced_eos_token_id=3,
        share_encoder_decoder_embeddings=False, tie_word_embeddings=False, scale_embedding=True,
    )  # fmt: skip
    data = [{"input_ids": s, "labels": t[1:], "length": max(len(s), len(t))} for s, t in pairs]

    def collate(chosen: list[dict[str, list[int]]]) -> dict[str, Tensor]:
        source = nn.utils.rnn.pad_sequence(
            [torch.tensor(one["input_ids"]) for one in chosen], batch_first=True
        )
        labels = nn.utils.rnn.pad_sequence(
            [torch.tensor(one["labels"]) for one in chosen], batch_first=True, padding_value=-100
        )
        return {"input_ids": source, "attention_mask": source != PAD, "labels": labels}

    arguments = Arguments(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=rows, max_steps=10**6,
        learning_rate=LR, lr_scheduler_type="constant", adam_beta2=0.98, adam_epsilon=1e-9,
        max_grad_norm=1.0, save_strategy="no", report_to=[], disable_tqdm=True,
        logging_strategy="no", train_sampling_strategy="group_by_length",
        length_column_name="length", remove_unused_columns=False,
        use_cpu=options.device == "cpu", bf16=options.precision == "bfloat16",
        dataloader_num_workers=0, optim="adamw_torch_fused", seed=1,
    )  # fmt: skip
    return Stepwise(Trainer, TrainerCallback, MarianMTModel(config), arguments, data, collate)


class Stepwise:
    """Runs a Trainer in a thread that goes on by one step whenever it is asked to."""

    def __init__(self, trainer, callback, model, arguments, data, collate) -> None:  # type: ignore[no-untyped-def]
        import threading

        self.go, self.done = threading.Semaphore(0), threading.Semaphore(0)
        self.loss, self.words = torch.zeros(()), 0
        outer = self

        class Watched(trainer):  # type: ignore[misc,valid-type]
            def training_step(self, model, inputs, *rest):  # type: ignore[no-untyped-def]
                outer.go.acquire()
                outer.words = int((inputs["labels"] != -100).sum())
                outer.loss = super().training_step(model, inputs, *rest).detach()
                return outer.loss

        class Ended(callback):  # type: ignore[misc,valid-type]
            def on_step_end(self, *args, **kwargs):  # type: ignore[no-untyped-def]
                outer.done.release()

        whole = Watched(
            model=model, args=arguments, train_dataset=data, data_collator=collate,
            callbacks=[Ended()],
        )  # fmt: skip
        threading.Thread(target=whole.train, daemon=True).start()

    def __call__(self) -> tuple[Tensor, int]:
        self.go.release()
        self.done.acquire()
        return self.loss, self.words


if __name__ == "__main__":
    main()
