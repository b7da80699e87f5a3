"""Two ways to train a model on torch alone: as the notebooks do, and as a careful user does."""

from __future__ import annotations

import torch
from models import Notebook
from ours import Batches, Pairs
from sizes import PAD
from torch import Tensor, nn
from turns import Step


def notebook_loop(model: Notebook, lr: float, batches: Batches) -> Step:
    """Logits of every position, a plain Adam, the loss read at each step."""
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


def random_batches(pairs: Pairs, size: int, seed: int, device: torch.device) -> Batches:
    """Yield pairs as they come, padded to the longest of a batch."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        chosen = torch.randint(len(pairs), (size,), generator=generator).tolist()
        source, target = (
            nn.utils.rnn.pad_sequence([torch.tensor(pairs[one][side]) for one in chosen], batch_first=True).to(device)
            for side in (0, 1)
        )
        yield source, target, sum(len(pairs[one][1]) - 1 for one in chosen)


def good_loop(model: nn.Module, lr: float, batches: Batches, device: torch.device, precision: str) -> Step:
    """Take a model that returns its loss; the optimizer is fused, and nothing waits for a loss."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True)

    def step() -> tuple[Tensor, int]:
        source, target, words = next(batches)
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            loss = model(source, target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach(), words

    return step
