"""bfloat16 products: float32 weights and losses near those of float32, and the measured speed of the processor."""

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from headtohead.model import precision
from headtohead.model.aligned import FEW_ROWS, MANY_ROWS, affine
from headtohead.model.attention import MAX_SHORT_SCORES, is_short
from headtohead.model.decoding import DecodingState
from headtohead.model.loss import backward_loss, token_losses
from headtohead.model.precision import faster_precision, matmul_precision
from headtohead.model.transformer import Transformer
from headtohead.testing.subject import Subject, explicit_forward
from headtohead.testing.tiny import tiny_config, tiny_data
from headtohead.training.backends import BatchShape, BatchSpec
from headtohead.training.evaluate import teacher_forced, translate_rows, translator
from headtohead.training.loop import StackTraining
from headtohead.training.maps import own_translations
from made import case_table


@cache
def trained(name: str, seeds: tuple[int, ...], steps: int = 4) -> StackTraining:
    config = tiny_config(train={"precision": name})
    training = StackTraining(config, seeds, tiny_data(), torch.device("cpu"))
    for _, batch in zip(range(steps), training._batches(), strict=False):
        training._step(batch)
    return training


def test_weights_and_moments_stay_float32_and_losses_are_near_those_of_float32() -> None:
    exact, rounded = trained("float32", (1, 2)), trained("bfloat16", (1, 2))
    assert {value.dtype for value in rounded.model.parameters()} == {torch.float32}
    moments = [part for part in rounded.optimizer.state().values() if part.is_floating_point()]
    assert {part.dtype for part in moments} == {torch.float32}
    torch.testing.assert_close(rounded.loss_sums, exact.loss_sums, rtol=0.01, atol=0)
    assert not torch.equal(rounded.loss_sums, exact.loss_sums)
    torch.testing.assert_close(
        rounded.loss_sums[1:], trained("bfloat16", (2,)).loss_sums, rtol=1e-3, atol=0
    )


class BFloat16Products(TorchDispatchMode):
    """Records the shapes of bfloat16 products."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: set[tuple[tuple[int, ...], ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in (torch.ops.aten.bmm, torch.ops.aten.baddbmm):
            factors = [value for value in args if isinstance(value, torch.Tensor)][-2:]
            if factors[0].dtype == torch.bfloat16:
                self.shapes.add(tuple(tuple(factor.shape) for factor in factors))
        return func(*args, **(kwargs or {}))


@pytest.mark.slow
def test_training_batches_of_all_lengths_have_few_shapes_of_bfloat16_products() -> None:
    """oneDNN generates code for every shape."""
    config = tiny_config(train={"precision": "bfloat16"})
    training = StackTraining(config, [1, 2], tiny_data(), torch.device("cpu"))
    rows = torch.arange(8).expand(2, -1)
    products = BFloat16Products()
    with products:
        for sentences in (5, 8):
            for source_time, target_time in product(range(3, 16, 4), range(4, 17, 4)):
                spec = BatchSpec(
                    rows[:, :sentences], BatchShape(sentences, source_time, target_time, sentences)
                )
                training._step(spec)
    assert 0 < len(products.shapes) < 60


def test_evaluation_uses_the_precision_of_training() -> None:
    training = trained("bfloat16", (2,))
    split = training.splits["valid"]
    rounded = teacher_forced(training.model, split, split.padded_batches(8))
    exact_model = trained("float32", (2,), 0).model
    exact_model.load_state_dict(training.model.state_dict())
    exact = teacher_forced(exact_model, split, split.padded_batches(8))
    torch.testing.assert_close(rounded.losses, exact.losses, rtol=0.05, atol=0.05)
    assert not torch.equal(rounded.losses, exact.losses)


def test_attention_of_up_to_512_tokens_uses_products_in_bfloat16_on_a_cpu() -> None:
    """The fused kernel is slower in bfloat16; in float32 it is faster for long sequences."""
    q = torch.randn(2, 3, 30, 8)
    with torch.autocast("cpu", torch.bfloat16):
        assert is_short(q, q)
        assert not is_short(torch.empty(2, 3, 600, 8), torch.empty(2, 3, 600, 8))
    assert not is_short(q, q)


def test_decoding_caches_keys_in_the_precision_of_the_products() -> None:
    for name, expected in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        model = trained(name, (2,), 0).model.eval()
        source = torch.tensor([[[4, 5, 6]]])
        with torch.no_grad(), matmul_precision(model):
            state = DecodingState(model, source, torch.tensor([[3]]), 4)
            state.logits(torch.ones(1, 1, 1, dtype=torch.long))
        caches = [cache for layer in state.caches for cache in layer]
        assert {tensor.dtype for cache in caches for tensor in cache.tensors.values()} == {expected}


def test_translations_beside_attention_maps_are_those_of_the_run() -> None:
    training, data = trained("bfloat16", (1, 2)), tiny_data()
    model, split = training.model.eval(), training.splits["train"]
    translate = translator(model.config.evaluate, data.target_vocabulary, 9)
    assert translate is not None
    for row in range(3):
        rows, time = torch.tensor([row]), int(split.source_lengths[row])
        scored = translate_rows(model, split, [rows], translate)
        source = split.source[row, :time].expand(2, 1, -1)
        own = own_translations(model, data, source, torch.full((2, 1), time), 9)
        assert [ids[1:] for ids in own] == [ids[row] for ids in scored]


def test_an_evaluation_in_float64_has_the_losses_of_float64() -> None:
    training = trained("float64", (1,), 1)
    model, split = training.model.eval(), training.splits["valid"]
    rows = torch.arange(len(split))
    batch = split.batch(rows.expand(1, -1), *split.times(rows))
    with torch.no_grad():
        logits = model(
            batch.source, batch.source_lengths, batch.decoder_input_ids, batch.target_lengths
        )
    expected = token_losses(logits, batch.labels).sum(-1)
    torch.testing.assert_close(
        teacher_forced(model, split, [rows]).losses, expected, rtol=0, atol=1e-12
    )


@case_table("attention", ["split-heads", "talking-heads", "sigmoid", "differential"], default=2)
def test_the_weights_of_the_explicit_path_are_computed_in_float32(attention: str) -> None:
    class Exponentials(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func.overloadpacket in (torch.ops.aten._softmax, torch.ops.aten.sigmoid):
                found.add(args[0].dtype)
            return func(*args, **(kwargs or {}))

    found: set[torch.dtype] = set()
    subject = Subject(tiny_config(attention=attention, train={"precision": "bfloat16"}))
    model = subject.model.float()
    with Exponentials(), matmul_precision(model), torch.no_grad():
        explicit_forward(model, subject.sentences)
    assert found == {torch.float32}


@pytest.mark.parametrize("rows", [48, FEW_ROWS + 5])
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_narrow_product_and_its_gradients_are_near_those_of_float32(
    rows: int, has_bias: bool
) -> None:
    generator = torch.Generator().manual_seed(4)
    shapes = [(2, rows, 24), (2, 24, 40), (2, 1, 40)][: 2 + has_bias]
    given = [torch.randn(shape, generator=generator) for shape in shapes]
    gradient = torch.randn(2, rows, 40, generator=generator)
    found = []
    for enabled in (False, True):
        factors = [value.clone().requires_grad_() for value in given]
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            x, weight, *bias = factors
            out = affine(x, weight, bias[0] if bias else None)
        assert out.dtype == (torch.bfloat16 if enabled else torch.float32)
        out.backward(gradient.to(out.dtype))
        gradients = [factor.grad for factor in factors]
        found.append([out.detach().float(), *(value for value in gradients if value is not None)])
    for exact, rounded in zip(*found, strict=True):
        assert rounded.dtype == torch.float32
        assert 0 < float((exact - rounded).norm() / exact.norm()) < 0.01


class Conversions(TorchDispatchMode):
    """Counts the conversions to bfloat16 by shape."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[tuple[int, ...]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        converts = func.overloadpacket is torch.ops.aten._to_copy
        if converts and (kwargs or {}).get("dtype") == torch.bfloat16:
            self.counts[tuple(args[0].shape)] += 1
        return func(*args, **(kwargs or {}))


def test_a_step_converts_the_factors_of_a_linear_layer_once() -> None:
    x = torch.randn(1, 48, 24, requires_grad=True)
    weight = torch.randn(1, 24, 40, requires_grad=True)
    with Conversions() as conversions:
        with torch.autocast("cpu", torch.bfloat16):
            out = affine(x, weight, None)
        out.float().sum().backward()
    assert conversions.counts == {(1, 48, 24): 1, (1, 24, 40): 1, (1, 48, 40): 1}  # and a gradient


@pytest.mark.parametrize("labels", [37, 3 * MANY_ROWS + 7, 2 * FEW_ROWS + 1])
def test_logits_of_any_number_of_labels_have_few_shapes(
    labels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new shape costs more than its product: oneDNN generates code for it."""
    training = trained("bfloat16", (1, 2), 0)
    batch = training.splits["train"].batch(torch.arange(8).expand(2, -1), 8, 8)
    hidden = torch.randn(2, 1, labels, training.config.model.d_model, requires_grad=True)
    monkeypatch.setattr(type(training.model), "hidden", lambda self, batch: hidden)
    ids = torch.ones(2, 1, labels, dtype=torch.long)
    with BFloat16Products() as products:
        backward_loss(
            training.model, replace(batch, labels=ids), labels, torch.full((2,), labels), 0.0
        )
    assert len(products.shapes) == 3
    vocabulary = training.model.vocab_sizes.target
    for shapes in products.shapes:
        sizes = {size for shape in shapes for size in shape[1:]}
        (rows,) = sizes - {vocabulary, training.config.model.d_model}
        assert rows % 16 == 0
        assert rows >= labels


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_attention_over_many_keys_is_near_that_of_float32(dropout: float) -> None:
    """In bfloat16, its softmax is along the last axis; dropout has the same random numbers."""
    time = 40
    assert time**2 > MAX_SHORT_SCORES
    found = []
    for name in ("float32", "bfloat16"):
        config = tiny_config(train={"precision": name}, dropout=dropout)
        model = Transformer(config, (1, 2), 30, 30).float().train()
        model.dropout_rng.set_step(3)
        ids = torch.arange(2 * time).view(1, 2, time).expand(model.members, -1, -1) % 5 + 4
        lengths = torch.tensor([time, time - 9]).expand(model.members, -1)
        with matmul_precision(model), torch.no_grad():
            found.append(model.encode(ids, lengths).float())
    exact, rounded = found
    assert 0 < float((exact - rounded).norm() / exact.norm()) < 0.02


def test_a_faster_precision_is_named_where_linear_layers_gain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(precision, "bfloat16_speed", lambda: 5.0)
    monkeypatch.setattr(precision, "linear_speed", lambda width: 2.04)
    assert faster_precision(256) == (
        "linear layers of width 256 are 2.0 times as fast in bfloat16 on this processor: "
        "--set train.precision=bfloat16"
    )
    assert not faster_precision(64)
    monkeypatch.setattr(precision, "linear_speed", lambda width: 1.1)
    assert not faster_precision(256)
    monkeypatch.setattr(precision, "bfloat16_speed", lambda: 0.3)
    assert not faster_precision(256)
