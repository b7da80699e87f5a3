"""tatoeba-en-es has the losses of a plain implementation for 25 steps with equal weights and batches.

benchmarks/results.md compares the two at the notebook's sizes over seeds, each with its own initial
weights and batches.
"""

import random

import pytest
import torch
from torch.nn import functional

from headtohead import data
from headtohead.plugins.registry import find_recipe
from headtohead.testing.checks.entries import recipe_config
from headtohead.training.loop import StackTraining, TrainingEvents
from headtohead_notebooks.checkpoints.mapping import convert, map_names

STEPS, ROWS = 25, 8


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    choose = random.Random(5)
    lines = []
    for _ in range(120):
        words = choose.choices("abcdefghijkl", k=choose.randint(1, 6))
        lines.append(f"{' '.join(words)}.\t¡{' '.join(word * 2 for word in words)}!")
    path = tmp_path_factory.mktemp("pairs") / "spa.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def training(file, tmp_path):
    """Training of the recipe at a small size, in float64; every step is evaluated."""
    chosen = {
        "data.file": file,
        "data.valid": 4,
        "data.test": 2,
        "positional.arithmetic": "single",
        "model.d_model": 16,
        "model.heads": 2,
        "model.layers": 2,
        "model.d_ff": 24,
        "model.dropout_residual": 0.0,
        "train.batch_size": ROWS,
        "train.lr": 5e-3,
        "train.steps": STEPS,
        "train.evaluate_every": 1,
        "train.precision": "float64",
    }
    overrides = [f"{field}={value}" for field, value in chosen.items()]
    config = recipe_config("tatoeba-en-es", overrides)
    prepared = data.prepare(config.data, tmp_path / "cache")
    return StackTraining(config, [1], prepared, torch.device("cpu"))


def plain_losses(model, training):
    """Train the notebook's model on the same batches with the notebook's loop."""
    training_pairs, plan = training.splits["train"], training.batches
    optimizer = torch.optim.Adam(model.parameters(), lr=training.train.lr)
    losses = []
    for epoch in range(1 + STEPS // plan.steps_per_epoch):
        for rows, *times in plan.of_epoch([1], epoch, 0):
            batch = training_pairs.batch(rows, *times)
            # The target from sos to eos, padded with 0 as in the notebook.
            target = torch.cat(
                [batch.decoder_input_ids[0, :, :1], batch.labels[0].clamp(min=0)], dim=1
            )
            logits = model(batch.source[0], target[:, :-1])
            optimizer.zero_grad()
            loss = functional.cross_entropy(
                logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=0
            )
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses[:STEPS]


@pytest.mark.slow
def test_losses_of_25_steps_are_those_of_a_plain_loop(notebooks, training):
    torch.manual_seed(3)
    words = training.model.vocab_sizes
    plain = notebooks.Tatoeba((words.source, words.target), 16, 2, 2, 24).double()
    checkpoint = find_recipe("tatoeba-en-es").checkpoints[0]
    start = convert(map_names(plain.state_dict(), checkpoint), training.model)
    training.model.load_state_dict({name: value[None] for name, value in start.items()})
    ours = []
    training.events = TrainingEvents(
        on_evaluation=lambda evaluation: ours.append(evaluation.metrics["train/loss"])
    )
    training.run()
    expected = plain_losses(plain, training)
    assert len(ours) == STEPS
    # float64 rounding, amplified by Adam over 25 steps.
    assert max(abs(a - b) for a, b in zip(ours, expected, strict=True)) < 1e-9
    assert expected[-1] < 0.9 * expected[0]
