"""Assignment of runs to stacks."""

import pytest

from headtohead.model.loss import LOGITS_AT_ONCE, max_chunk_logits
from headtohead.planning import stacking
from headtohead.planning.stacking import arrange

WIDE = """
design:
- product:
    positional: [sinusoidal, alibi]
    attention: [split-heads, single-head]
    train.lr: [0.001, 0.003]
"""


@pytest.fixture
def wide(plan):
    return plan(WIDE, seeds=3)


def sizes_of(stacks):
    return sorted(len(stack) for stack in stacks)


PLENTY = 2**42


def arranged(plan, workers, most=None, memory=PLENTY):
    """Arrange the runs of a plan; ``most`` replaces the estimated number of members."""
    with pytest.MonkeyPatch.context() as patch:
        if most is not None:
            patch.setattr(stacking, "fastest_members", lambda *arguments: most)
        return arrange(plan, plan.runs, workers, "cpu", memory)


def test_runs_of_one_shape_train_together_despite_other_differences(wide):
    stacks = arranged(wide, workers=1)
    assert sizes_of(stacks) == [12, 12]
    for stack in stacks:
        configs = [wide.by_slug[run.variant].config for run in stack]
        assert len({config.attention.model_dump_json() for config in configs}) == 1
        assert len({run.variant for run in stack}) == 4


def test_every_run_is_in_exactly_one_stack(wide):
    for workers in (1, 2, 3, 5, 40):
        for most in (1, 4, 7, None):
            stacks = arranged(wide, workers, most)
            keys = [run.run_hash for stack in stacks for run in stack]
            assert sorted(keys) == sorted(run.run_hash for run in wide.runs)
            assert max(map(len, stacks)) <= (most or 99)
            assert len(stacks) >= min(workers, len(keys))


def test_members_of_a_stack_are_sorted_by_learning_rate(wide):
    for stack in arranged(wide, workers=1):
        rates = [wide.by_slug[run.variant].config.train.lr for run in stack]
        assert rates == sorted(rates)


@pytest.mark.parametrize(
    ("workers", "most", "expected"),
    [
        (2, None, [12, 12]),
        (3, None, [6, 6, 12]),
        (4, None, [6] * 4),
        (2, 5, [4] * 6),
        (8, 12, [3] * 8),
        (5, 8, [4, 4, 4, 6, 6]),
        (100, 12, [1] * 24),
    ],
)
def test_no_process_is_idle_while_runs_remain(wide, workers, most, expected):
    assert sizes_of(arranged(wide, workers, most)) == expected


@pytest.mark.parametrize(("seeds", "variants"), [(2, 2), (12, 1)])
def test_a_variant_with_enough_runs_for_a_stack_has_a_separate_stack(plan, seeds, variants):
    sizes = "model.d_model=48", "model.d_ff=96", "train.batch_tokens=512"
    found = plan("design:\n- product: {positional: [sinusoidal, alibi]}\n", *sizes, seeds=seeds)
    stacks = arranged(found, workers=1)
    assert {len({run.variant for run in stack}) for stack in stacks} == {variants}
    assert sum(map(len, stacks)) == 2 * seeds
    assert len(arrange(found, found.runs, 1, "cuda", PLENTY)) == 1


LARGE = [
    f"model.{name}={size}"
    for name, size in {"d_model": 512, "d_ff": 2048, "layers": 6, "heads": 8}.items()
]


def test_a_model_that_uses_all_cores_is_not_stacked(plan):
    found = plan("", *LARGE, "train.batch_tokens=4096", seeds=4)
    assert sizes_of(arranged(found, workers=2)) == [1] * 4


@pytest.mark.slow
def test_a_stack_fits_into_the_memory_of_the_gpu(plan):
    """128 members of 44 million parameters would be 90 GB without activations."""
    found = plan("", *LARGE, "train.batch_tokens=4096", seeds=128)
    weights = found.variants[0].record.counts.total * 16
    assert 128 * weights > 80e9
    assert sizes_of(arrange(found, found.runs, 1, "cuda", PLENTY)) == [128]
    for memory in (16 * 2**30, 80 * 2**30):
        largest = max(sizes_of(arrange(found, found.runs, 1, "cuda", memory)))
        assert largest * weights < memory


def test_stacks_are_smaller_if_processes_share_the_memory(plan):
    found = plan("", "model.d_model=64", "model.d_ff=128", "train.batch_tokens=4096", seeds=16)
    assert sizes_of(arranged(found, 1, most=16)) == [16]
    small = sizes_of(arranged(found, 1, most=16, memory=2**30))
    assert 1 < max(small) < 16
    assert sizes_of(arranged(found, 1, most=16, memory=2**20)) == [1] * 16


def test_a_stack_on_a_gpu_leaves_memory_for_captured_steps(plan):
    """A captured step has separate memory, in addition to that of the eager step that verifies it."""
    size = ("model.d_model=64", "model.d_ff=128", "train.batch_tokens=4096")
    eager, auto = (plan("", *size, f"train.backend={backend}") for backend in ("eager", "auto"))
    members = [fitting(found, "cuda", 2**32) for found in (eager, auto)]
    assert members[1] == members[0] // 2 > 10


def fitting(found, device="cpu", memory=2**30):
    return stacking._fitting(found, found.runs[0], 1000, device, memory)


def test_a_large_vocabulary_leaves_memory_for_several_members_on_a_cpu(plan):
    """Logits are computed in chunks there, and in larger pieces on a GPU."""
    size = (
        "model.d_model=64",
        "model.d_ff=128",
        "train.batch_tokens=1024",
        "evaluate.batch_size=16",
    )
    size += ("model.min_vocab_size=30000",)
    planned = plan("", *size, "train.backend=eager")
    memory = 3 * 2**29
    assert fitting(planned, memory=memory) > 4 > fitting(planned, "cuda", memory) == 1


def test_a_stack_on_a_gpu_leaves_memory_for_the_smallest_chunk_of_logits(plan):
    """A chunk has 2 · d_model positions, also if these are more logits than the limit of a GPU."""
    size = ("model.d_model=1024", "train.batch_tokens=4096", "model.min_vocab_size=60000")
    planned = plan("", *size, "train.backend=eager")
    chunk = 2 * 1024 * 60_000
    assert max_chunk_logits(1024, 60_000, is_cuda=True) == chunk > LOGITS_AT_ONCE
    member = stacking.training_bytes(planned, planned.runs[0])
    without_logits = stacking.PROCESS_BYTES + 2.02 * member / stacking.MEMORY_FRACTION
    logits = 4 * stacking.LOGIT_COPIES
    too_small = int(without_logits + logits * LOGITS_AT_ONCE)
    assert fitting(planned, "cuda", too_small) == 1
    assert fitting(planned, "cuda", int(without_logits + logits * chunk)) == 2


def test_larger_batches_of_an_evaluation_and_gates_need_memory(plan):
    size = ("model.d_model=64", "model.d_ff=256", "train.batch_tokens=1024")
    small = fitting(plan("", *size, "evaluate.batch_size=16"))
    assert small > 2 * fitting(plan("", *size, "evaluate.batch_size=1024")) > 2
    gated = ("evaluate.batch_size=16", "feed_forward=swiglu")
    assert small > 1.1 * fitting(plan("", *size, *gated)) > 1


def test_members_fit_by_the_scores_that_a_step_stores(plan):
    size = ("model.d_model=16", "model.heads=8", "train.batch_size=64", "train.pad_to=64")
    fused = fitting(plan("", *size))
    with_weights, in_parts = (
        fitting(plan("", *size, *more))
        for more in (
            ["model.dropout_attention=0.1"],
            ["model.dropout_attention=0.1", "train.num_microbatches=4"],
        )
    )
    assert fused > 2 * with_weights
    assert in_parts > 2 * with_weights
