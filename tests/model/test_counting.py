"""Weights and FLOPs of a small variant, counted by hand and by torch."""

import subprocess
import sys

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from headtohead.model import counting
from headtohead.model.counting import count
from headtohead.model.transformer import Transformer
from headtohead.plugin import Positional
from headtohead.testing.invariants.model_state import parameter_count_equals_the_closed_form
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from made import case_table, plugin_of, separate_registry
from made.oracle import CHOICES

D, FF, SOURCE_WORDS, TARGET_WORDS, S, T = 16, 12, 11, 13, 6, 5


def linear(inputs, outputs):
    return inputs * outputs + outputs


# name: inner width of queries, of keys, of values
GEOMETRY = {
    "split-heads": (D, D, D),
    "single-head": (D, D, D),
    "independent-heads": (4 * D, 4 * D, 4 * D),
    "grouped-query": (D, D // 2, D // 2),
}


def counted(attention, **model):
    config = tiny_config(attention=attention, **model)
    return count(config, SOURCE_WORDS, TARGET_WORDS, S, T)


@pytest.mark.parametrize("attention", GEOMETRY)
def test_parameters_equal_a_count_by_hand(attention):
    q, k, v = GEOMETRY[attention]
    one_attention = linear(D, q) + linear(D, k) + linear(D, v) + linear(q, D)
    norm, feed_forward = 2 * D, linear(D, FF) + linear(FF, D)
    encoder = one_attention + feed_forward + 2 * norm
    decoder = 2 * (2 * one_attention + feed_forward + 3 * norm)
    found = counted(attention)
    assert found.attention == 5 * one_attention
    assert found.non_embedding == encoder + decoder + 2 * norm
    words = (SOURCE_WORDS + TARGET_WORDS) * D + linear(D, TARGET_WORDS)
    assert found.total == found.non_embedding + words
    assert found.inner_width == q


def test_embeddings_of_values_count_as_embeddings():
    plain, found = counted("split-heads"), counted("value-embedding")
    assert (found.non_embedding, found.attention) == (plain.non_embedding, plain.attention)
    assert found.total == plain.total + 3 * 2 + (SOURCE_WORDS + 2 * TARGET_WORDS) * D


@pytest.mark.parametrize("attention", GEOMETRY)
def test_flops_equal_a_count_by_hand(attention):
    """A product of [a, b] and [b, c] has 2abc FLOPs; only products are counted."""
    q, k, v = GEOMETRY[attention]
    projections = {"queries": 2 * D * q, "memory": 2 * D * (k + v), "output": 2 * q * D}

    def attend(queries, keys):
        own = queries * (projections["queries"] + projections["output"])
        return own + keys * projections["memory"] + 2 * queries * keys * 2 * q

    feed_forward = 2 * 2 * D * FF
    encoder = attend(S, S) + S * feed_forward
    decoder = 2 * (attend(T, T) + attend(T, S) + T * feed_forward)
    total = encoder + decoder + T * 2 * D * TARGET_WORDS
    assert counted(attention).flops_per_token == total / T


def test_flops_of_mean_lengths_are_means_and_logits_are_those_of_labels():
    def of(source, target, labels=None):
        return (
            count(tiny_config(), SOURCE_WORDS, TARGET_WORDS, source, target, labels).flops_per_token
            * target
        )

    mean = (of(5, 4) + of(5, 5) + of(6, 4) + of(6, 5)) / 4
    assert of(5.5, 4.5) == pytest.approx(mean)
    assert of(S, T) - of(S, T, labels=2) == (T - 2) * 2 * D * TARGET_WORDS
    assert counted("sinks").flops_per_token == counted("split-heads").flops_per_token


def test_flops_of_a_triangular_system_are_counted():
    heads, plain = 4, counted("split-heads").flops_per_token
    projections = (
        2 * D * (3 * D + 2 * heads) + 2 * D * D
    )  # queries, keys, values, two numbers per head; gates
    products = 3 * 2 * T * D  # queries and keys, keys and keys, results
    solution = T * D
    extra = projections + products + solution - 2 * D * 3 * D - 2 * 2 * T * D
    assert counted({"decoder": "gated-delta"}).flops_per_token == plain + 2 * extra


OPTIONS = {
    name: choices
    for name, choices in CHOICES.items()
    if {"quirks", "tie_embeddings", "bias"} & {*choices}
}


@pytest.mark.parametrize("model", OPTIONS.values(), ids=OPTIONS.keys())
def test_parameters_of_model_options_equal_the_closed_form(model):
    subject = Subject(tiny_config(**model))
    assert parameter_count_equals_the_closed_form(subject).state == "holds"
    found = count(subject.config, *subject.vocab_sizes, S, T)
    assert found.total == sum(parameter[0].numel() for parameter in subject.model.parameters())


def test_attention_without_projections_has_no_parameters():
    plain = count(tiny_config(), SOURCE_WORDS, TARGET_WORDS, S, D)
    found = count(tiny_config(attention="embedding-softmax"), SOURCE_WORDS, TARGET_WORDS, S, D)
    assert plain.attention - found.attention == 8 * linear(D, D) == plain.total - found.total
    products = 2 * (D * D * D * 2 + 4 * D * D * D * 2)
    # QKᵀ and four projections of two layers are absent; the product of weights and values remains.
    assert (plain.flops_per_token - found.flops_per_token) * D == products
    assert found.path == {"encoder": "fused", "decoder": "explicit", "cross": "fused"}


def test_costs_are_those_of_the_class_that_is_registered_now():
    """A cell of a notebook that is executed again registers another class under the same name."""

    def plugin(rows):
        class Own(Positional):
            def build(self):
                self.unused = self.parameter(rows)

        own = plugin_of(positional={"my-own": Own})
        with separate_registry(own):
            return count(tiny_config("my-own"), 20, 20, 6, 5).total

    assert plugin(1010) - plugin(10) == 2 * 1000


# -- by torch, on the CPU and on the device meta

VARIANTS = {
    "plain": {},
    "rotated, grouped": {"positional": "rotary", "attention": "grouped-query"},
    "with scores and values": {"positional": "shaw-relative", "attention": "talking-heads"},
    "without a mask in the decoder": {"attention": "linear", "masking": "none"},
    "with prefix sums": {"attention": "linear"},
    "differential": {"attention": "differential", "positional": "t5-relative"},
    "seventy heads": {"d_model": 140, "heads": 70},
    "second attention of the decoder": {"quirks": {"cross_attention_memory": "decoder"}},
    "feed-forward after each attention": {
        "quirks": {"decoder_feed_forward": "after-each", "shared_modules": ["norm"]}
    },
    "one row of words": {"tie_embeddings": "all", "bias": False, "quirks": {"min_vocab_size": 40}},
}


def by_torch(name: str) -> int:
    """Count the cheaper path of attention on the device meta with torch's counter."""
    config = tiny_config(**VARIANTS[name])
    model = Transformer(config, None, SOURCE_WORDS, TARGET_WORDS).eval()
    source, target = (torch.zeros(1, 1, n, dtype=torch.long, device="meta") for n in (S, T))
    lengths = torch.ones(1, 1, dtype=torch.long, device="meta")
    found = []
    for observe in (None, lambda *_: None):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            hidden = model.hidden(model.batch_of(source, lengths, target, lengths), observe)
            assert model.project(hidden).is_meta
        found.append(counter.get_total_flops())
    return min(found)


@pytest.fixture
def devices(monkeypatch):
    """Count anew, and record the devices of the operations."""
    seen = set()
    execute = counting.Operations.__torch_dispatch__

    def watched(self, func, types, args=(), kwargs=None):
        out = execute(self, func, types, args, kwargs)
        if isinstance(out, torch.Tensor):
            seen.add(out.device.type)
        return out

    monkeypatch.setattr(counting.Operations, "__torch_dispatch__", watched)
    monkeypatch.setattr(counting, "_COUNTED", {})
    return seen


@case_table("name", VARIANTS, default=2)
def test_flops_of_small_and_large_models_equal_those_of_torchs_counter(name, devices, monkeypatch):
    small = count(tiny_config(**VARIANTS[name]), SOURCE_WORDS, TARGET_WORDS, S, T)
    assert small.flops_per_token * T == by_torch(name) > 0
    assert devices == {"cpu"}
    monkeypatch.setattr(counting, "MAX_CPU_FLOPS", 0)
    counting._COUNTED.clear()
    devices.clear()
    assert count(tiny_config(**VARIANTS[name]), SOURCE_WORDS, TARGET_WORDS, S, T) == small
    assert "meta" in devices


def test_counting_changes_neither_the_thread_count_nor_the_random_state():
    torch.set_num_threads(2)
    try:
        before = torch.get_rng_state()
        count(tiny_config("fire"), SOURCE_WORDS, TARGET_WORDS, S, T)
        assert torch.get_num_threads() == 2
        assert torch.equal(torch.get_rng_state(), before)
    finally:
        torch.set_num_threads(1)


@pytest.mark.slow
def test_counting_loads_no_compiler():
    code = (
        "import sys\n"
        "from headtohead.model.counting import count\n"
        "from headtohead.testing.tiny import tiny_config\n"
        "for positional, attention in (('sinusoidal', 'split-heads'), ('rotary', 'qk-norm'),\n"
        "                              ('t5-relative', 'qk-norm')):\n"
        "    count(tiny_config(positional, attention=attention), 11, 13, 6, 5)\n"
        "print({'torch._dynamo', 'torch._inductor', 'sympy'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
