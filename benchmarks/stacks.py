"""Cost and gain of stacking, as ratios; both sides alternate in one process.

    python benchmarks/stacks.py [--device cuda] [--rounds 30]

1. A stack of one member against the same model in plain torch modules (plain.py): step times.
2. A stack of n members against n runs in sequence, each a stack of one member: runs per second.
3. A stack of unlike runs (3 encodings × 2 masks × 3 learning rates × 2 seeds) against a stack of
   equal size whose members differ in their seeds only: step times.

    python benchmarks/stacks.py --check

measures the first two at notebook 1's size and exits with 1 if a ratio is beyond its limit.

    python benchmarks/stacks.py --formula [--size NAME ...]

trains stacks of 1, 2, 4, ... members at each size, in alternation, and compares the number of members
that the planner's formula chooses with the fastest. It exits with 1 if the formula loses more than 10 %
of the runs per second.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from plain import PlainTraining, Size

from headtohead.config.builder import resolve
from headtohead.data import Split
from headtohead.planning.stacking import MAX_MEMBERS, fastest_members
from headtohead.training.loop import StackTraining, TrainingEvents
from headtohead.training.memory import is_out_of_memory, keep_freed_memory

SIZES = [
    Size("notebook 1", 10, 1, 1, 40, 40, 40, 20, 5, 5),
    Size("quickstart", 32, 2, 1, 64, 106, 157, 64, 8, 8),
    Size("tatoeba-heads", 64, 4, 2, 256, 3000, 3000, 128, 8, 8),
    Size("128/4/2/512", 128, 4, 2, 512, 8000, 8000, 128, 10, 10),
]

MAX_COST_OF_ONE = 1.4
"""Limit of the step time of a stack of one over plain modules; measured: 1.02 to 1.21."""

MIN_GAIN_OF_SIXTEEN = 3.0
"""Limit of the runs per second of 16 stacked runs over 16 runs in sequence; measured: 4.7 to 6."""
MAX_FORMULA_LOSS = 0.10
"""Limit of the runs per second that the formula loses against the fastest measured stack size."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--members", type=int, nargs="*", default=[4, 16])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--formula", action="store_true")
    parser.add_argument(
        "--size", action="append", choices=[size.name for size in SIZES], help="default: all"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    device = torch.device(options.device)
    if options.check:
        sys.exit(check(device, options.rounds))
    sizes = [size for size in SIZES if options.size is None or size.name in options.size]
    if options.formula:
        sys.exit(check_formula(sizes, device, options.rounds))
    print(
        f"{machine(device)}; torch {torch.__version__}, {options.threads} thread(s), float32; median of "
        f"{options.rounds} alternating rounds; `python benchmarks/stacks.py --device {options.device}`\n"
    )
    stacked = " | ".join(f"{n} runs: stacked / in sequence" for n in options.members)
    print(
        f"| size | plain modules, ms a step | stack of one / plain | {stacked} | {len(UNLIKE)} unlike / alike, step |"
    )
    print("|---|---:|---:|" + "---:|" * (len(options.members) + 1))
    for size in sizes:
        print(row(size, device, options.rounds, options.members), flush=True)


def row(size: Size, device: torch.device, rounds: int, members: list[int]) -> str:
    plain, single = plain_step(size, device), stack_step(size, 1, device)
    times = alternate([plain, single], device, rounds)
    cells = [f"{times[0] * 1000:.2f}", f"{times[1] / times[0]:.2f}"]
    for n in members:
        alone, stacked = alternate(
            [single, stack_step(size, n, device)], device, max(5, rounds // 2)
        )
        cells.append(f"{n * alone / stacked:.1f} times the runs per second")
    if size.d_model <= MAX_UNLIKE_WIDTH:
        steps = [
            stack_step(size, len(UNLIKE), device),
            stack_step(size, len(UNLIKE), device, UNLIKE),
        ]
        alike, unlike = alternate(steps, device, max(5, rounds // 2))
        cells.append(f"{unlike / alike:.2f}")
    else:
        cells.append("–")
    return f"| {size.name} | " + " | ".join(cells) + " |"


def check(device: torch.device, rounds: int) -> int:
    """Print the two ratios and return 1 if a ratio is beyond its limit, else 0."""
    size = SIZES[0]
    steps = [plain_step(size, device), stack_step(size, 1, device), stack_step(size, 16, device)]
    plain, alone, stacked = alternate(steps, device, rounds)
    cost, gain = alone / plain, 16 * alone / stacked
    print(f"stack of one / plain modules: {cost:.2f} (at most {MAX_COST_OF_ONE})")
    print(f"16 runs, stacked / in sequence: {gain:.1f} (at least {MIN_GAIN_OF_SIXTEEN})")
    return int(cost > MAX_COST_OF_ONE or gain < MIN_GAIN_OF_SIXTEEN)


def check_formula(sizes: Sequence[Size], device: torch.device, rounds: int) -> int:
    """Print the loss of the formula at each size, and return 1 if a loss is beyond its limit, else 0."""
    print(
        "| size | members of the formula | ms of a step per member | fastest | ms of a step per member | loss |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    worst = 0.0
    for size in sizes:
        training = stack_training(size, 1, torch.device("meta"))
        parameters = sum(parameter.numel() for parameter in training.parameters)
        # The formula estimates the numbers of a step from the tokens of a batch.
        train = training.config.train.model_copy(
            update={"batch_tokens": size.rows * size.target_time}
        )
        chosen = fastest_members(
            training.config.model_copy(update={"train": train}), parameters, device.type
        )
        seconds = member_seconds(size, chosen, device, rounds)
        chosen = max(
            members for members in seconds if members <= chosen
        )  # a stack that does not fit is halved
        fastest = min(seconds, key=seconds.__getitem__)
        loss = 1 - seconds[fastest] / seconds[chosen]
        worst = max(worst, loss)
        cells = f"{chosen} | {seconds[chosen] * 1e3:.2f} | {fastest} | {seconds[fastest] * 1e3:.2f} | {loss:.0%}"
        print(f"| {size.name} | {cells} |", flush=True)
    print(f"largest loss: {worst:.0%} (at most {MAX_FORMULA_LOSS:.0%})")
    return int(worst > MAX_FORMULA_LOSS)


def member_seconds(size: Size, chosen: int, device: torch.device, rounds: int) -> dict[int, float]:
    """Return the seconds of a step per member, for ``chosen`` and for 1, 2, 4, ... members, in alternating rounds.

    The largest stack is the largest that fits into memory, at most four times ``chosen``.
    """
    powers = [2**power for power in range(MAX_MEMBERS[device.type].bit_length())]
    steps: dict[int, Callable[[], Any]] = {}
    for members in sorted({chosen, *(power for power in powers if power <= 4 * chosen)}):
        try:
            steps[members] = stack_step(size, members, device)
            steps[members]()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            steps.pop(members, None)
            break
    seconds = alternate(list(steps.values()), device, rounds)
    return {members: second / members for members, second in zip(steps, seconds, strict=True)}


def plain_step(size: Size, device: torch.device) -> Callable[[], Any]:
    """Return a training step of plain torch modules."""
    plain = PlainTraining(size, device)
    source, target = (ids.to(device) for ids in random_batch(size))
    return lambda: plain.step(source, target)


def random_batch(size: Size) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random source and target ids; lengths differ by at most 3, as in a length bucket."""
    generator = torch.Generator().manual_seed(1)
    sides = []
    for vocab_size, time_ in (
        (size.source_words, size.source_time),
        (size.target_words, size.target_time + 1),
    ):
        ids = torch.randint(4, vocab_size, (size.rows, time_), generator=generator)
        lengths = torch.randint(max(2, time_ - 3), time_ + 1, (size.rows, 1), generator=generator)
        lengths[0] = time_
        sides.append(ids.masked_fill(torch.arange(time_) >= lengths, 0))
    return sides[0], sides[1]


class FakeVocabulary:
    """A vocabulary with a size and a padding id, and without tokens."""

    def __init__(self, size: int) -> None:
        self.size, self.pad = size, 0

    def __len__(self) -> int:
        return self.size


class RandomData:
    """Prepared data that consists of a single random batch."""

    def __init__(self, size: Size) -> None:
        self.source_vocabulary = FakeVocabulary(size.source_words)
        self.target_vocabulary = FakeVocabulary(size.target_words)
        source, target = random_batch(size)
        ids = ([row[row != 0].numpy() for row in side] for side in (source, target))
        split = Split(*ids, source_text=[], target_text=[], references=[], groups=[])
        self.splits = {"train": split, "valid": split}
        self.record = {"longest": {"source": size.source_time, "target": size.target_time + 1}}


UNLIKE = [
    {"positional": positional, "masking": masking, "train": {"lr": lr}}
    for lr in (5e-4, 1e-3, 2e-3)
    for positional in ("sinusoidal", "rotary", "alibi")
    for masking in ("padding-causal", "causal")
    for _ in range(2)
]
"""Overrides in which members of a stack may differ, each for two seeds."""

MAX_UNLIKE_WIDTH = 64
"""Largest width with unlike members; on a CPU, wider models gain nothing from stacking."""


def stack_training(
    size: Size,
    members: int,
    device: torch.device,
    overrides: Sequence[Mapping[str, Any]] = ({},),
    *,
    train: Mapping[str, Any] | None = None,
    on_fall_back: Callable[[str], None] = lambda reason: None,
) -> StackTraining:
    """Return the training of a stack on a single random batch.

    Args:
        size: Sizes of the model and the batch.
        members: Number of members; a multiple of the number of overrides.
        device: Where to train.
        overrides: Configuration of the members beyond the sizes, repeated as often as necessary.
        train: Fields of ``train`` of all members.
        on_fall_back: Called with the reason of a fallback to eager.
    """
    model = {
        "d_model": size.d_model,
        "heads": size.heads,
        "layers": size.layers,
        "d_ff": size.d_ff,
        "dropout": 0.0,
    }
    fields = {
        "steps": 10**6,
        "schedule": "constant",
        "warmup_steps": 0,
        "lr": 1e-3,
        **(train or {}),
    }
    configs = [
        resolve(
            {
                **own,
                "model": {**model, **own.get("model", {})},
                "train": {**fields, **own.get("train", {})},
            },
        )
        for own in overrides
    ]
    data: Any = RandomData(size)
    return StackTraining(
        configs[0],
        range(1, members + 1),
        data,
        device,
        configs=configs * (members // len(configs)),
        events=TrainingEvents(on_fall_back=on_fall_back),
    )


def batch_spec(training: StackTraining, size: Size) -> Any:
    """Return the random batch as the training loop describes a batch."""
    rows = torch.arange(size.rows).expand(training.model.members, -1)
    return training.batch_spec(rows, size.source_time, size.target_time)


def step_of(training: StackTraining, size: Size) -> Callable[[], Any]:
    """Return a training step on the random batch."""
    spec = batch_spec(training, size)
    return lambda: training._step(spec)


def stack_step(
    size: Size, members: int, device: torch.device, overrides: Sequence[Mapping[str, Any]] = ({},)
) -> Callable[[], Any]:
    """Return a training step of a new stack; the arguments are those of `stack_training`."""
    return step_of(stack_training(size, members, device, overrides), size)


def alternate(steps: list[Callable[[], Any]], device: torch.device, rounds: int) -> list[float]:
    """Return the median seconds of each step, in alternating rounds."""
    # A single CPU thread is timed in processor time, so that other processes do not count.
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if alone else time.perf_counter
    repeats = []
    for step in steps:
        step()
        started = clock()
        step()
        synchronise(device)
        repeats.append(max(1, round(0.02 / (clock() - started))))
    seconds: list[list[float]] = [[] for _ in steps]
    for _ in range(rounds):
        for index, step in enumerate(steps):
            synchronise(device)
            started = clock()
            for _ in range(repeats[index]):
                step()
            synchronise(device)
            seconds[index].append((clock() - started) / repeats[index])
    return [statistics.median(values) for values in seconds]


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def machine(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = platform.processor() or platform.machine()
    path = Path("/proc/cpuinfo")
    if path.exists():
        models = [
            line.split(":")[1].strip()
            for line in path.read_text().splitlines()
            if line.startswith("model name")
        ]
        name = f"{models[0]}, {len(models)} cores"
    return name


if __name__ == "__main__":
    main()
