"""What tests of several folders make: tables of cases, studies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from headtohead.errors import HeadToHeadError

if TYPE_CHECKING:
    from headtohead.testing import Verdict


def case_table(
    names: str | Sequence[str], rows: Iterable[Any], *, default: int, ids: Any = None
) -> pytest.MarkDecorator:
    """Parametrize a test; all rows but the first ``default`` belong to the slow tier."""
    one_name = isinstance(names, str) and "," not in names
    cases = [row if hasattr(row, "marks") else pytest.param(*([row] if one_name else row)) for row in rows]
    slow = [case._replace(marks=[*case.marks, pytest.mark.slow]) for case in cases[default:]]
    return pytest.mark.parametrize(names, [*cases[:default], *slow], ids=ids)


def moved(model: Any, scale: float = 0.3) -> Any:
    """Return a model in evaluation mode after random moves of its parameters, the same in every call."""
    import torch

    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * scale)
    return model.eval()


def refused(call: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """Return the error of a call, which is a single line."""
    with pytest.raises(HeadToHeadError) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def unexpected(verdicts: Mapping[Any, Verdict]) -> dict[Any, str]:
    """Return the violations that no setting is known to cause."""
    return {name: str(verdict) for name, verdict in verdicts.items() if verdict.outcome == "violated"}
