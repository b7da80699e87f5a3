"""Correctness and speed of training on a GPU, in three parts.

    python benchmarks/gpu.py --part 1 --part 2
    python benchmarks/gpu.py --part 3 > gpu.md

1. Correctness: dropout, attention without keys, steps and translations on the GPU against the CPU in float64, for
   several shapes, unlike members, backends and precisions. A fallback to eager is a failure; the exit code is 1.
2. The same for steps of every entry in both architectures.
3. Runs per second of stacks of 1 to 1,024 members against single runs, and model FLOP/s as a share of the measured rate
   of a large product. Goals: 90 times at 256 members of notebook 1, 20 times at 128/4/2/512.

``--device cpu`` executes everything at small sizes, as a test of this script.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from plain import Size
from stacks import SIZES, machine, plain_step, stack_training, step_of, synchronise
from torch.nn import functional

from headtohead.model.counting import count
from headtohead.model.cuda import cuda_layout
from headtohead.model.decoding import Ends, greedy
from headtohead.model.dropout import Dropout, DropoutRNG, Thresholds
from headtohead.planning.compatibility import find_incompatibility
from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig, changed
from headtohead.testing import Subject, tiny_config
from headtohead.training.cuda import configure
from headtohead.training.loop import StackTraining, TrainingEvents
from headtohead.training.memory import is_out_of_memory

NOTEBOOK = replace(SIZES[0], name="notebook-1")
LARGE = SIZES[3]
ODD = Size("odd", 24, 3, 2, 20, 43, 51, 6, 13, 11)
"""Head width 8; vocabularies, lengths and rows that are no multiples of 8."""

CURVES = ((NOTEBOOK, (1, 4, 16, 64, 256, 1024)), (LARGE, (1, 2, 4, 8, 16, 32, 64)))
SMALL_CURVES = ((NOTEBOOK, (1, 4)), (ODD, (1, 2)))
RATES = (2**-11, 2**-10, 2**-9)
"""Learning rates that float32 represents exactly: on a GPU, torch's fused update takes its rate in float32."""

PRECISIONS = {"float64": 1e-8, "float32": 1e-3, "tf32": 1e-2, "bfloat16": 5e-2}
"""Largest difference of the mean loss by precision."""

STEPS = 8
UNLIKE = [
    {
        "train": {"lr": lr, "label_smoothing": lr * 100},
        "positional": positional,
        "masking": masking,
        "model": {"mask_value": mask_value, "dropout": lr * 100},
    }
    for lr in RATES
    for positional in ("sinusoidal", "rotary", "alibi")
    for masking in ("padding-causal", {"decoder": "causal", "encoder": "none", "cross": "padding"})
    for mask_value in ("-inf", "-1e9")
]
"""Runs of equal shape with different rates, encodings, masks, mask values, dropout and label smoothing."""

STACKS: dict[str, list[dict[str, Any]]] = {
    "without dropout": [{}, {"train": {"lr": RATES[2]}}, {"positional": "alibi"}],
    "with dropout": [
        {"model": {"dropout": 0.1}},
        {"model": {"dropout": 0.2, "mask_value": "-1e9"}},
    ],
    "learned biases": [{"positional": "t5-relative", "model": {"dropout": 0.1}}] * 2,
    "tied": [{"model": {"tie_embeddings": "output"}, "train": {"label_smoothing": 0.1}}] * 2,
    "unlike": UNLIKE,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--part", type=int, choices=(1, 2, 3), action="append", help="default: all parts"
    )
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    device = torch.device(options.device)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            print("torch finds no GPU", file=sys.stderr)
            return 2
        configure()
    backends = ("eager", "cuda-graphs") if device.type == "cuda" else ("eager",)
    wrong = 0
    for line in report(device, options.part or [1, 2, 3], backends):
        print(line, flush=True)
        wrong |= "WRONG" in line
    return wrong


def report(device: torch.device, parts: Sequence[int], backends: Sequence[str]) -> Iterator[str]:
    began = time.monotonic()
    small = device.type == "cpu"
    yield f"{machine(device)}; torch {torch.__version__}; `python benchmarks/gpu.py`"
    yield ""
    if 1 in parts:
        yield from kernels(device)
        yield from steps(device, backends)
        yield from translations(device)
    if 2 in parts:
        yield from entries(device)
    if 3 in parts:
        yield from curve(device, backends[-1], small)
    yield ""
    yield f"{time.monotonic() - began:.0f} s"


# -- parts 1 and 2: correctness --------------------------------------------------------------------


def verdict(right: bool) -> str:
    return "right" if right else "WRONG"


def kernels(device: torch.device) -> Iterator[str]:
    """Compare dropout bit for bit, and the efficient kernel where a query attends to no key."""
    results = []
    values = torch.randn(3, 70, 61, dtype=torch.float64)
    for where in (torch.device("cpu"), device):
        rng = DropoutRNG([5, 2**63 + 9, 2**56], where)
        rng.set_step(4)
        site, x = Dropout(rng, 2, Thresholds(0.3)), values.to(where).requires_grad_()
        out = (site(x), site.transposed(x))
        results.append(
            [
                *(y.detach().cpu() for y in out),
                torch.autograd.grad(out[0].sum() + out[1].sum(), x)[0].cpu(),
            ]
        )
    same = all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    yield f"- dropout, forward, transposed and backward, bit for bit: {verdict(same)}"
    q, k, v = (torch.randn(4, 2, 5, 8, device=device, requires_grad=True) for _ in range(3))
    mask = torch.zeros(4, 1, 5, 8, device=device)[..., :5]
    mask[1, :, 2] = -torch.inf
    heads = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    gradients = torch.autograd.grad(heads.sum(), (q, k, v))
    right = not heads[1, :, 2].any() and all(
        bool(gradient.isfinite().all()) for gradient in gradients
    )
    yield f"- a query that attends to no key has output 0 and finite gradients: {verdict(right)}"


def steps(device: torch.device, backends: Sequence[str]) -> Iterator[str]:
    """Compare steps with those of the CPU in float64."""
    large = replace(LARGE, rows=8, source_words=800, target_words=803)
    sizes = [NOTEBOOK, ODD]
    precisions = [*PRECISIONS]
    if device.type == "cuda":
        sizes.append(large)
    else:
        precisions = [name for name in PRECISIONS if name not in ("tf32", "bfloat16")]
    float64 = {"precision": "float64", "backend": "eager"}
    for size, (name, overrides) in itertools.product(sizes, STACKS.items()):
        reference = trained(size, torch.device("cpu"), overrides, float64)
        for precision, backend in itertools.product(precisions, backends):
            fallbacks: list[str] = []
            train = {"precision": precision, "backend": backend}
            label = f"{size.name}, {name}, {precision}, {backend}"
            try:
                with cuda_layout():
                    other = trained(size, device, overrides, train, fallbacks.append)
            except Exception as error:  # the other comparisons are still worth their time
                yield f"- {label}: WRONG: {type(error).__name__}: {error}"
                continue
            right, differences = compared(other, reference, precision)
            reasons = "".join(f"; {reason}" for reason in fallbacks)
            yield f"- {label}: {differences}: {verdict(right and not fallbacks)}{reasons}"


def compared(other: StackTraining, reference: StackTraining, precision: str) -> tuple[bool, str]:
    """Return whether two trainings agree, in float64 also in their weights, and their differences in words."""
    losses = float((other.loss_sums.cpu() - reference.loss_sums).abs().max()) / STEPS
    weights = max(
        float((a.detach().double().cpu() - b.detach()).norm() / b.detach().norm().clamp(min=1e-12))
        for a, b in zip(other.parameters, reference.parameters, strict=True)
        if b.abs().max() > 0.05
    )
    limit = PRECISIONS[precision]
    right = losses <= limit and (precision != "float64" or weights <= limit)
    return right, f"loss differs by {losses:.2g}, weights by {weights:.2g}"


def entries(device: torch.device) -> Iterator[str]:
    """Compare steps of each entry and optimizer in both architectures with those of the CPU in float64."""
    families = ("positional", "attention", "masking", "feed_forward", "norm")
    choices = [{family: name} for family in families for name in current().entries[family]]
    choices += [{"train": {"optimizer": "muon"}}, {"train": {"schedule": "wsd", "z_loss": 1e-4}}]
    jobs = [
        (str(device), *job)
        for job in itertools.product(("encoder-decoder", "decoder-only"), choices)
    ]
    with multiprocessing.get_context("spawn").Pool(8) as pool:
        found = pool.starmap(entry, jobs, chunksize=1)
    yield from (line for lines, _, _ in found for line in lines)
    number, replayed = (sum(counts) for counts in list(zip(*found, strict=True))[1:])
    yield f"- steps of every entry in both architectures: {number} comparisons, {replayed} with CUDA graphs"


def entry(name: str, architecture: str, own: dict[str, Any]) -> tuple[list[str], int, int]:
    """Return a line for each wrong comparison of an entry, and the numbers of comparisons and of captured trainings."""
    torch.set_num_threads(1)
    device, lines, number, replayed = torch.device(name), [], 0, 0
    chosen = {family: value for family, value in own.items() if family != "train"}
    train = {"lr": RATES[1], "batch_size": 48, "steps": 60, **own.get("train", {})}
    config = tiny_config(**chosen, train=train, architecture=architecture, dropout=0.1)
    if find_incompatibility(config, {}) is not None:
        return [], 0, 0
    reference = tiny_training(config, torch.device("cpu"), {})
    for precision, backend in (
        ("float64", "eager"),
        *((name, "auto") for name in PRECISIONS if name != "tf32"),
    ):
        if device.type == "cpu" and (precision == "bfloat16" or backend == "auto"):
            continue
        fallbacks: list[str] = []
        try:
            with cuda_layout():
                train = {"precision": precision, "backend": backend}
                other = tiny_training(config, device, train, fallbacks.append)
            right, differences = compared(other, reference, precision)
            replayed += other.backend is not None
        except Exception as error:  # the other comparisons are still worth their time
            right, differences = False, f"{type(error).__name__}: {error}"
        number += 1
        if not right or fallbacks:
            lines.append(
                f"- {architecture}, {own}, {precision}, {backend}: WRONG: {differences}; {fallbacks}"
            )
    return lines, number, replayed


def tiny_training(
    config: RunConfig,
    device: torch.device,
    train: dict[str, Any],
    on_fall_back: Callable[[str], None] = print,
) -> StackTraining:
    """Return a stack of two runs of a small configuration after ``STEPS`` steps."""
    config = changed(config, train=train)
    training = StackTraining(
        config,
        [1, 2],
        Subject(config).data,
        device,
        events=TrainingEvents(on_fall_back=on_fall_back),
    )
    for batch in itertools.islice(training._batches(), STEPS):
        training._step(batch)
    return training


def trained(
    size: Size,
    device: torch.device,
    overrides: Sequence[dict[str, Any]],
    train: dict[str, Any],
    on_fall_back: Callable[[str], None] = lambda reason: None,
) -> StackTraining:
    """Return a stack after ``STEPS`` steps."""
    train = {"lr": RATES[1], **train}
    training = stack_training(
        size, len(overrides), device, overrides, train=train, on_fall_back=on_fall_back
    )
    step = step_of(training, size)
    for _ in range(STEPS):
        step()
    return training


def translations(device: torch.device) -> Iterator[str]:
    """Compare greedy translations in float64."""
    train = {"precision": "float64", "backend": "eager"}
    ids = []
    for first, where in ((True, torch.device("cpu")), (False, device)):
        with nullcontext() if first else cuda_layout():
            training = trained(ODD, where, STACKS["with dropout"], train)
            split, rows = training.splits["train"], torch.arange(ODD.rows).expand(2, -1)
            batch = split.batch(rows.to(where), ODD.source_time, ODD.target_time)
            model = training.model.eval()
            ends = Ends(sos=1, eos=2, fill=0)
            found = greedy(model, batch.source, batch.source_lengths, 25, ends)
        ids.append(functional.pad(found, (0, 25 - found.shape[-1])).cpu())
    yield f"- greedy decoding in float64: {verdict(torch.equal(*ids))}"


# -- part 3: speed ---------------------------------------------------------------------------------


def product_rate(device: torch.device, precision: str, side: int) -> float:
    """Return the FLOP/s of a large product."""
    torch.backends.cuda.matmul.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    return 2 * side**3 / timed(lambda: torch.mm(a, b), device, 10)


def curve(device: torch.device, backend: str, small: bool) -> Iterator[str]:
    """Yield the table of runs per second by members."""
    precisions = ("float32",) if small else ("float32", "tf32", "bfloat16")
    rates = {
        precision: product_rate(device, precision, 256 if small else 8192)
        for precision in precisions
    }
    yield ""
    yield f"Measured product: {', '.join(f'{name} {rate / 1e12:.1f}' for name, rate in rates.items())} TFLOP/s"
    yield ""
    yield (
        "| size | precision | members | ms per step | runs per second against one by one | against eager one by one | "
        "TFLOP/s | share of the product's rate | backend |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|---|"
    for size, numbers in SMALL_CURVES if small else CURVES:
        for precision in precisions:
            eager = alone = 0.0
            single = [(1, "plain modules")] * (precision == "float32") + [(1, "eager")]
            for members, kind in dict.fromkeys(
                [*single, *((members, backend) for members in numbers)]
            ):
                seconds = step_seconds(size, members, device, precision, kind)
                if seconds is None:
                    yield f"| {size.name} | {precision} | {members} | out of memory | | | | | {kind} |"
                    continue
                if members == 1:
                    alone, eager = seconds, seconds if kind == "eager" else eager
                rate = flops(size) * members / seconds
                ratios = f"{members * alone / seconds:.1f} | {members * eager / seconds:.2g}"
                yield (
                    f"| {size.name} | {precision} | {members} | {seconds * 1000:.3f} | {ratios} | {rate / 1e12:.2f} | "
                    f"{rate / rates[precision]:.1%} | {kind} |"
                )


def flops(size: Size) -> float:
    """Return the FLOPs of a training step of a run."""
    training = stack_training(size, 1, torch.device("meta"))
    counts = count(
        training.config, size.source_words, size.target_words, size.source_time, size.target_time
    )
    return 3 * counts.flops_per_token * size.target_time * size.rows


def step_seconds(
    size: Size, members: int, device: torch.device, precision: str, backend: str
) -> float | None:
    """Return the seconds of a step of a stack, or None if it does not fit into memory."""
    train = {"precision": precision, "backend": backend}
    seconds = None
    try:
        plain = backend == "plain modules"
        step = (
            plain_step(size, device)
            if plain
            else step_of(stack_training(size, members, device, train=train), size)
        )
        seconds = timed(step, device, 20)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return seconds


def timed(work: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Return the median seconds of a call, launched repeatedly without waiting for the device."""
    for _ in range(6):  # eager steps, capture and verification come before the measurement
        work()
    synchronise(device)
    began = time.perf_counter()
    work()
    synchronise(device)
    calls = max(1, min(100, round(0.02 / (time.perf_counter() - began))))
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(calls):
            work()
        synchronise(device)
        seconds.append((time.perf_counter() - began) / calls)
    return statistics.median(seconds)


if __name__ == "__main__":
    sys.exit(main())
