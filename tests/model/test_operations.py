"""FLOPs counted on the CPU equal those that torch counts on the device meta."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from headtohead.model import counting, operations
from headtohead.model.counting import count
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


@pytest.fixture
def devices(monkeypatch):
    """Count anew, and record the devices of the operations."""
    seen = set()
    execute = operations.Operations.__torch_dispatch__

    def watched(self, func, types, args=(), kwargs=None):
        out = execute(self, func, types, args, kwargs)
        if isinstance(out, torch.Tensor):
            seen.add(out.device.type)
        return out

    monkeypatch.setattr(operations.Operations, "__torch_dispatch__", watched)
    monkeypatch.setattr(counting, "_COUNTED", {})
    return seen


@case_table("name", VARIANTS, default=4)
def test_flops_of_small_and_large_models_equal_those_of_torchs_counter(name, devices, monkeypatch):
    small = count(tiny_config(**VARIANTS[name]), *WORDS, *LENGTHS)
    assert small.flops_per_token * LENGTHS[1] == by_torch(name) > 0
    assert devices == {"cpu"}
    monkeypatch.setattr(counting, "MAX_CPU_FLOPS", 0)
    counting._COUNTED.clear()
    devices.clear()
    assert count(tiny_config(**VARIANTS[name]), *WORDS, *LENGTHS) == small
    assert "meta" in devices


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
