"""Layouts and kernels of CUDA, forced on the CPU: padding and kernels change no result."""

import importlib
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from headtohead.model import attention, loss
from headtohead.model.cuda import ALIGNED, AttentionKernel, aligned_mask, cuda_layout
from headtohead.model.members import PerMember
from headtohead.model.precision import matmul_precision
from headtohead.training.cuda import configure
from headtohead.training.optimise import clip_gradients
from made import case_table

from . import test_backends
from .test_backends import train, training

NO_DROPOUT: dict[str, list[dict[str, Any]]] = {
    "two": [{"train": {"label_smoothing": 0.1}}, {"positional": "t5-relative"}],
    "masks": [{"positional": "alibi"}, {"masking": "window"}, {"model": {"mask_value": "-1e9"}}],
    "grouped": [{"attention": "grouped-query"}],
}


@case_table(
    ("kind", "kernels", "pieces"),
    [
        ("two", {"math"}, 1),
        ("unlike", {"math"}, 2),
        ("two without dropout", {"math"}, 1),
        ("two without dropout", {"efficient"}, 2),
        ("masks without dropout", {"efficient"}, 1),
        ("grouped without dropout", {"efficient"}, 1),
    ],
    default=1,
)
def test_the_cuda_layout_trains_the_same_weights(
    kind: str, kernels: set[str], pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, raws in NO_DROPOUT.items():
        own = [{**raw, "model": {**raw.get("model", {}), "dropout": 0.0}} for raw in raws]
        monkeypatch.setitem(test_backends.KINDS, f"{name} without dropout", own)
    expected = train(training(kind, precision="float64", pieces=pieces))
    seen = set()

    def kernel(
        dtype: torch.dtype, key: int, value: int, sentences: int, drops: bool
    ) -> AttentionKernel:
        """Use the efficient kernel in float64, where CUDA has none."""
        name = "math" if drops or kernels == {"math"} else "efficient"
        seen.add(name)
        return AttentionKernel(name, "")

    monkeypatch.setattr(attention, "attention_kernel", kernel)
    monkeypatch.setattr(loss, "LARGE_VOCABULARY", 1)
    with cuda_layout():
        found = train(training(kind, precision="float64", pieces=pieces))
    assert seen == kernels
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("keys", [3, 8, 13, 16])
@pytest.mark.parametrize("lead", [(1, 1), (6, 1), (6, 2)])
def test_padding_a_mask_aligns_its_strides_and_changes_no_value(
    keys: int, lead: tuple[int, int]
) -> None:
    mask = torch.randn(*lead, 5, keys, dtype=torch.float64, requires_grad=True)
    channels_last = mask.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    tables = [mask, mask[..., : keys - 1], mask[:1].expand(6, 2, 5, keys), channels_last]
    tables.append(mask[:1, :1, :1].as_strided((1, 1, 1, keys), (9, 9, 9, 1)))
    for table in tables:
        aligned = aligned_mask(table)
        assert aligned.stride(-1) == 1
        assert not any(stride % ALIGNED for stride in aligned.stride()[:-1])
        assert torch.equal(aligned, table)
    assert torch.autograd.grad(aligned_mask(mask).sum(), mask)[0].eq(1).all()


@pytest.mark.parametrize("vocab", [40, 43])
@pytest.mark.parametrize("tied", [False, True])
def test_logits_and_their_factor_have_aligned_rows(
    vocab: int, tied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, weight = torch.randn(2, 6, 4).double(), torch.randn(2, vocab, 4).double()
    weight = (
        weight.transpose(1, 2) if tied else weight.transpose(1, 2).contiguous()
    ).requires_grad_()
    labels, count = torch.randint(0, vocab, (2, 6)), torch.full((2,), 6.0).double()
    products: list[tuple[int, ...]] = []
    bmm = torch.bmm

    def watched(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
        products.extend(
            x.stride()[:-1] for x in (b, out) if x is not None and x.shape[-1] == vocab and not tied
        )
        return bmm(a, b) if out is None else bmm(a, b, out=out)

    expected = loss.loss_gradients(hidden, weight, None, labels, count)
    monkeypatch.setattr(torch, "bmm", watched)
    with cuda_layout():
        found = loss.loss_gradients(hidden, weight, None, labels, count)
    assert all(stride % ALIGNED == 0 for strides in products for stride in strides)
    assert tied or products
    assert found.weight is not None
    assert expected.weight is not None
    torch.testing.assert_close((found.losses, found.weight), (expected.losses, expected.weight))


@pytest.mark.slow
@case_table("kind", ["two", "relative"], default=1)
def test_steps_of_the_cuda_layout_can_be_captured(kind: str) -> None:
    with cuda_layout():
        expected, stack = train(training(kind)), training(kind)
        replays = test_backends.replayed(stack)
        assert test_backends.same(train(stack), expected)
    assert replays() > 0


class OnMeta(TorchFunctionMode):
    """Replaces calls for which torch has no kernel on the device meta."""

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = kwargs or {}
        if func is scaled_dot_product_attention:
            mask, efficient = (
                kwargs["attn_mask"],
                torch.ops.aten._scaled_dot_product_efficient_attention,
            )
            mask = None if mask is None else mask.expand(*args[0].shape[:3], args[1].shape[2])
            return efficient(*args, mask, True, scale=kwargs["scale"])[0]
        return None if func in (torch._fused_adam_, torch._fused_adamw_) else func(*args, **kwargs)


class Operations(TorchDispatchMode):
    """Counts operations except views."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


@pytest.mark.slow
@pytest.mark.parametrize(("members", "most"), [(1, 240), (256, 330)])
def test_a_step_has_few_operations_and_reads_no_value(
    members: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the device meta, tensors have no values that the host could read and wait for."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    stacks = importlib.import_module("stacks")
    meta, size = torch.device("meta"), stacks.SIZES[0]
    with cuda_layout(), OnMeta():
        step = stacks.step_of(
            stacks.stack_training(size, members, meta, [{"model": {"dropout": 0.1}}]), size
        )
        step()
        with Operations() as operations:
            step()
    assert 150 < operations.count <= most


@pytest.mark.parametrize("largest", [1.5, PerMember([0.1, 1e9, 2.0])])
def test_gradients_of_members_are_clipped_as_on_a_cpu(largest: float | PerMember) -> None:
    parameters = [
        torch.nn.Parameter(torch.zeros(3, *shape)) for shape in ((4, 5), (1, 7), (2,), (6, 1))
    ]
    gradients = [torch.randn_like(parameter) for parameter in parameters]
    results = []
    for context in (nullcontext(), cuda_layout()):
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.clone()
        with context:
            norms = clip_gradients(parameters, largest)
        results.append([norms, *(parameter.grad for parameter in parameters)])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


KERNELS = ("cudnn", "flash", "mem_efficient", "math")
PRODUCTS = torch.backends.cuda.matmul


@pytest.fixture
def process_settings() -> Iterator[None]:
    """Restore torch's settings of CUDA after a test."""
    kernels = {name: getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in KERNELS}
    reduces, precision = PRODUCTS.allow_bf16_reduced_precision_reduction, PRODUCTS.fp32_precision
    yield
    for name, value in kernels.items():
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(value)
    PRODUCTS.allow_bf16_reduced_precision_reduction, PRODUCTS.fp32_precision = reduces, precision


@pytest.mark.usefixtures("process_settings")
@pytest.mark.parametrize(
    ("precision", "products"), [("tf32", "tf32"), ("float32", "ieee"), ("bfloat16", "ieee")]
)
def test_only_tf32_rounds_the_factors_of_float32_products(precision: str, products: str) -> None:
    """The setting of another model in the same process has no effect."""
    PRODUCTS.fp32_precision = "ieee" if products == "tf32" else "tf32"
    weight = SimpleNamespace(device=torch.device("cuda"))
    config = training("plain", precision=precision).config
    model: Any = SimpleNamespace(config=config, target_embedding=SimpleNamespace(weight=weight))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*CUDA is not available.*")
        matmul_precision(model)
    assert PRODUCTS.fp32_precision == products


@pytest.mark.usefixtures("process_settings")
def test_cudnn_and_flash_attention_are_disabled() -> None:
    configure()
    enabled = {name for name in KERNELS if getattr(torch.backends.cuda, f"{name}_sdp_enabled")()}
    assert enabled == {"mem_efficient", "math"}
