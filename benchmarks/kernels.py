"""Measurements behind decisions of the training path on a CPU.

    python benchmarks/kernels.py

1. Attention, forward and backward, in float32 and bfloat16: torch's fused kernel against two batched
   products with scores stored as [key, query] (model/attention.py).
2. Parts of the loss and of attention: exp against exp2, the gradient of a narrow decoder output against
   its transpose (model/loss.py), softmax in bfloat16 against float32 (model/attention.py).
3. The most probable token in both precisions: argmax against most_probable (model/decoding.py).
4. A training step with logits larger than 32 MiB, with the C library's default allocation and with
   freed memory kept (training/memory.py), in separate processes.
"""

from __future__ import annotations

import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from stacks import SIZES, machine, stack_step
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from headtohead.model.attention import _two_products
from headtohead.model.attention_context import AttentionContext
from headtohead.model.decoding import most_probable
from headtohead.model.dropout import Dropout, DropoutRNG
from headtohead.training.memory import keep_freed_memory

NO_DROPOUT = Dropout(DropoutRNG([0], torch.device("cpu")), 0, 0.0)

PRECISIONS = (torch.float32, torch.bfloat16)

SHAPES = [
    (20, 1, 5, 10),
    (64, 2, 8, 16),
    (384, 2, 8, 16),
    (384, 2, 8, 32),
    (256, 2, 12, 16),
    (192, 4, 16, 32),
    (96, 4, 20, 32),
    (128, 4, 32, 32),
    (64, 4, 64, 32),
    (8, 8, 128, 64),
    (2, 8, 512, 64),
]


def main() -> None:
    torch.set_num_threads(1)
    print(f"{machine(torch.device('cpu'))}; torch {torch.__version__}, 1 thread; medians of")
    print("processor time; `python benchmarks/kernels.py`\n")
    print("| rows × heads × time × width | precision | fused, ms | two products, ms | ratio |")
    print("|---|---|---:|---:|---:|")
    for shape, dtype in itertools.product(SHAPES, PRECISIONS):
        fused, short = attention(*shape, dtype)
        name = f"{' × '.join(map(str, shape))} | {str(dtype).removeprefix('torch.')}"
        print(f"| {name} | {fused:.2f} | {short:.2f} | {fused / short:.2f} |", flush=True)
    print("\n| computation | plain, ms | in use, ms | ratio |\n|---|---:|---:|---:|")
    for name, first, second in alternatives():
        one, other = alternate([first, second])
        print(f"| {name} | {one:.2f} | {other:.2f} | {one / other:.2f} |", flush=True)
    default, kept = (
        float(subprocess.run([sys.executable, __file__, memory], check=True, capture_output=True, text=True).stdout)
        for memory in ("default", "kept")
    )
    print(f"\nA step of six members at {SIZES[2].name}'s size: {default:.0f} ms with the C library's")
    print(f"defaults, {kept:.0f} ms with freed memory kept: {default / kept:.2f} times.")


def alternatives() -> Iterator[tuple[str, Callable[[], object], Callable[[], object]]]:
    """Yield a name, the plain computation and the computation in use."""
    for rows, vocab in ((209, 5000), (262, 8000)):
        logits = torch.randn(rows, vocab)
        out = torch.empty_like(logits)
        yield (
            f"{rows} × {vocab:,} float32: exp, exp2",
            partial(torch.exp, logits, out=out),
            partial(torch.exp2, logits, out=out),
        )
    delta, weight = torch.randn(3, 71, 5000), torch.randn(3, 10, 5000)
    yield (
        "3 × 71 × 5,000, width 10: gradient of the decoder output, its transpose",
        partial(torch.bmm, delta, weight.transpose(1, 2)),
        partial(torch.bmm, weight, delta.transpose(1, 2)),
    )
    scores = torch.randn(1028, 7, 7).bfloat16()
    yield (
        "1,028 × 7 × 7 scores, bfloat16: softmax in bfloat16, in float32",
        partial(torch.softmax, scores, 1),
        lambda: torch.softmax(scores.float(), 1).bfloat16(),
    )
    for dtype in PRECISIONS:
        logits = torch.randn(128, 25_035).to(dtype)
        name = str(dtype).removeprefix("torch.")
        yield f"128 × 25,035 {name}: argmax, most_probable", partial(logits.argmax, -1), partial(most_probable, logits)


def attention(rows: int, heads: int, length: int, width: int, dtype: torch.dtype) -> tuple[float, float]:
    q, k, v = (torch.randn(rows, heads, length, width, dtype=dtype, requires_grad=True) for _ in range(3))
    lengths = torch.randint(1, length + 1, (rows, 1))
    mask = (torch.arange(length) < lengths)[None, :, None, None].expand(1, rows, 1, length, length)
    positions = torch.arange(length).unsqueeze(0)
    context = AttentionContext(positions, positions, mask)
    gradient = torch.randn(rows, heads, length, width, dtype=dtype)

    def fused() -> Tensor:
        return scaled_dot_product_attention(q, k, v, attn_mask=mask[0])

    def short() -> Tensor:
        additive_mask = context.additive(q.dtype, "-inf")
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            return _two_products(q, k, v, additive_mask, NO_DROPOUT, width**-0.5, context)

    def both(kernel: Callable[[], Tensor]) -> Callable[[], None]:
        def run() -> None:
            q.grad = k.grad = v.grad = None
            kernel().backward(gradient)

        return run

    return tuple(alternate([both(fused), both(short)]))  # type: ignore[return-value]


def alternate(works: list[Callable[[], None]], rounds: int = 40) -> list[float]:
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for index, work in enumerate(works):
            started = time.process_time()
            for _ in range(5):
                work()
            seconds[index].append((time.process_time() - started) / 5 * 1000)
    return [statistics.median(values) for values in seconds]


def large_step(memory: str) -> None:
    torch.set_num_threads(1)
    if memory == "kept":
        keep_freed_memory()
    step = stack_step(SIZES[2], 6, torch.device("cpu"))
    step()
    print(alternate([step], 6)[0])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        large_step(sys.argv[1])
    else:
        main()
