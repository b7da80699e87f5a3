"""Two training loops in plain torch: that of the notebooks, and an efficient one."""

from __future__ import annotations

import torch
from models import Notebook
from ours import Batches, Pairs
from sizes import PAD
from torch import Tensor, nn
from turns import Step


def notebook_loop(model: Notebook, lr: float, batches: Batches) -> Step:
    """Return a step with logits at every position, plain Adam, and the loss read at each step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)

    def step() -> tuple[float, int]:
        source, target, words = next(batches)
        optimizer.zero_grad()
        logits = model(source, target[:, :-1])
        loss = criterion(logits.reshape(-1, logits.shape[-1]), target[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.item(), words

    return step


def random_batches(pairs: Pairs, size: int, seed: int) -> Batches:
    """Yield random pairs, padded to the longest of a batch."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        chosen = torch.randint(len(pairs), (size,), generator=generator).tolist()
        source, target = (
            nn.utils.rnn.pad_sequence(
                [torch.tensor(pairs[row][side]) for row in chosen], batch_first=True
            )
            for side in (0, 1)
        )
        yield source, target, sum(len(pairs[row][1]) - 1 for row in chosen)


def good_loop(model: nn.Module, lr: float, batches: Batches, precision: str) -> Step:
    """Return a step of a model that returns its loss, with fused Adam and without reading the loss."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True)

    def step() -> tuple[Tensor, int]:
        source, target, words = next(batches)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            loss = model(source, target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach(), words

    return step
