"""The dropout kernel of CUDA, run by Triton's interpreter, has the numbers of the CPU bit for bit."""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from headtohead.model import dropout
from headtohead.model.batch import Batch
from headtohead.model.cuda import cuda_layout
from headtohead.model.dropout import Dropout, DropoutRNG, Thresholds, kernel_fault
from headtohead.model.loss import backward_loss
from headtohead.model.members import PerMember
from headtohead.model.transformer import Transformer
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from made import case_table

MODULE = "headtohead.model.dropout_triton"


@cache
def interpreted() -> Any:
    """Make the kernel available on the CPU, and return the registration."""
    library = torch.library.Library("headtohead", "IMPL")
    library.impl("dropout", lambda *arguments: sys.modules[MODULE].dropout(*arguments), "CPU")  # type: ignore[attr-defined]
    return library


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    pytest.importorskip("triton")
    __import__(MODULE)
    interpreted()
    yield
    del sys.modules[MODULE]


def both(compute: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Return the results of the CPU's dropout and of the kernel."""
    expected = compute()
    with monkeypatch.context() as patched:
        patched.setattr(dropout, "uses_kernel", lambda x: True)
        return expected, compute()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_dropout_has_a_fallback_where_the_kernel_cannot_run() -> None:
    """Here torch has no CUDA; on other machines Triton, a C compiler or Python's headers are missing."""
    assert "CUDA" in kernel_fault(torch.device("cuda"))
    with cuda_layout():
        assert not dropout.uses_kernel(SimpleNamespace(device=torch.device("cuda"), is_cuda=True))  # type: ignore[arg-type]
        assert dropout.uses_kernel(torch.empty(2, device="meta")), (
            "operations are counted on the device meta"
        )


@pytest.mark.usefixtures("kernel")
@pytest.mark.filterwarnings("ignore:invalid value encountered in multiply")
@case_table("dtype", [torch.float64, torch.float32, torch.bfloat16], default=2)
@pytest.mark.parametrize("rate", [0.1, PerMember([0.0, 0.3, 0.5])])
@case_table("rows", [(0, 3), (1, 3), (5, 1)], ids=str, default=1)
def test_the_kernel_drops_the_same_activations(
    dtype: torch.dtype,
    rate: float | PerMember,
    rows: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = torch.randn(3, rows[1] * 7, 61).to(dtype)
    values[1, 2, 3] = torch.inf

    def compute() -> list[Tensor]:
        rng = DropoutRNG([5, 2**63 + 9, 2**56], torch.device("cpu"))
        rng.set_step(4)
        rng.start_microbatch(first=rows[0], rows=rows[1])
        site = Dropout(rng, 2, Thresholds(rate))
        x = values.clone().requires_grad_()
        out = [site(x), site.transposed(x)]
        return [*out, *torch.autograd.grad([y.nan_to_num().sum() for y in out], x)]

    expected, found = both(compute, monkeypatch)
    # The interpreter truncates bfloat16 numbers, where a GPU rounds them.
    tolerance = 2**-7 if dtype == torch.bfloat16 else 0
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == dtype
        assert torch.equal(a == 0, b == 0)
        torch.testing.assert_close(a, b, rtol=tolerance, atol=0, equal_nan=True)


@pytest.mark.usefixtures("kernel")
def test_a_step_with_the_kernel_has_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(tiny_config())
    sentences = subject.sentences

    def compute() -> list[Tensor]:
        model = Transformer(tiny_config(dropout=0.3), subject.seeds, *subject.vocab_sizes).double()
        model.dropout_rng.set_step(1)
        batch = Batch(
            sentences.source,
            sentences.source_lengths,
            sentences.target,
            sentences.target,
            sentences.target_lengths,
        )
        counts = torch.ones(model.members).double()
        losses = backward_loss(model, batch, sentences.target[0].numel(), counts, 0.0)
        return [losses, *(p.grad for p in model.parameters() if p.grad is not None)]

    expected, found = both(compute, monkeypatch)
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


COMPILE = """
import itertools
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from headtohead.model.dropout_triton import _kernel

for name, is_transposed in itertools.product(("fp32", "bf16", "fp64"), (False, True)):
    wide = triton.language.float64 if name == "fp64" else triton.language.float32
    constants = {"low_stride": 1, "scale_stride": 0, "is_transposed": is_transposed, "wide": wide, "block": 1024}
    types = {argument: "i64" if argument == "start" else "i32" for argument in _kernel.arg_names}
    types |= {"starts": "*i64", "low": "*i64", **dict.fromkeys(("x", "out", "scale"), f"*{name}")}
    types |= dict.fromkeys(constants, "constexpr")
    source = ASTSource(fn=_kernel, signature=types, constexprs=constants)
    assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]
"""


@pytest.mark.slow
def test_the_kernel_compiles_for_a_gpu(tmp_path: Path) -> None:
    """In another process: the interpreter replaces functions that the compiler needs. No GPU is necessary."""
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
