"""FLOPs counted on the CPU equal those that torch counts on the device meta."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from headtohead.model import operations
from headtohead.model.counting import _count, count
from headtohead.model.transformer import Transformer
from headtohead.testing.tiny import tiny_config
from made import case_table

WORDS = (11, 13)
LENGTHS = (6, 5)

VARIANTS = {
    "plain": {},
    "rotated, grouped": {"positional": "rotary", "attention": "grouped-query"},
    "with a bias": {"positional": "alibi", "attention": "qk-norm"},
    "with scores and values": {"positional": "shaw-relative", "attention": "talking-heads"},
    "a bias of a small network": {"positional": "fire", "attention": "independent-heads"},
    "without a mask in the decoder": {"attention": "linear", "masking": "none"},
    "with prefix sums": {"attention": "linear"},
    "differential": {"attention": "differential", "positional": "t5-relative"},
    "seventy heads": {"d_model": 140, "heads": 70},
    "one row of words": {"tie_embeddings": "all", "bias": False, "quirks": {"min_vocab_size": 40}},
}


@cache
def by_torch(name: str) -> int:
    """Count on the device meta with torch's counter."""
    config = tiny_config(**VARIANTS[name])
    model = Transformer(config, None, *WORDS).eval()
    source, target = (torch.zeros(1, 1, n, dtype=torch.long, device="meta") for n in LENGTHS)
    lengths = torch.ones(1, 1, dtype=torch.long, device="meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        logits = model(source, lengths, target, lengths)
    assert logits.is_meta
    return counter.get_total_flops()


@pytest.fixture(autouse=True)
def empty_caches():
    """Clear the caches of counts."""
    _count.cache_clear()
    yield
    _count.cache_clear()


@pytest.fixture
def counting_devices(monkeypatch):
    """Record the devices on which FLOPs are counted."""
    seen = []
    of_shapes = operations.Operations.__torch_dispatch__

    def watched(self, func, types, args=(), kwargs=None):
        out = of_shapes(self, func, types, args, kwargs)
        if isinstance(out, torch.Tensor):
            seen.append(out.device.type)
        return out

    monkeypatch.setattr(operations.Operations, "__torch_dispatch__", watched)
    return seen


@case_table("name", VARIANTS, default=4)
def test_flops_counted_on_the_cpu_equal_torchs_count_on_meta(name, counting_devices):
    found = count(tiny_config(**VARIANTS[name]), *WORDS, *LENGTHS)
    assert found.flops_per_token * LENGTHS[1] == by_torch(name) > 0
    assert set(counting_devices) == {"cpu"}


@case_table("name", VARIANTS, default=4)
@case_table("limit", ["MOST_NUMBERS", "MOST_FLOPS"], default=4)
def test_large_models_are_counted_on_meta_with_the_same_result(name, limit, counting_devices, monkeypatch):
    config = tiny_config(**VARIANTS[name])
    small = count(config, *WORDS, *LENGTHS)
    _count.cache_clear()
    counting_devices.clear()
    monkeypatch.setattr(operations, limit, 1000)
    assert count(config, *WORDS, *LENGTHS) == small
    assert counting_devices[-1] == "meta"


def test_counting_changes_neither_the_thread_count_nor_the_random_state():
    torch.set_num_threads(2)
    try:
        before = torch.get_rng_state()
        count(tiny_config("fire"), *WORDS, *LENGTHS)
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
