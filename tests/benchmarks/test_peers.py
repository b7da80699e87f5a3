"""The sides of the comparison with other libraries train the same model and have equal losses."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2] / "benchmarks" / "peers"
EXACT = ("notebook", "torch.nn.Transformer")
STEPS = 5


@pytest.fixture(scope="module")
def sides() -> Iterator[ModuleType]:
    """The module ``benchmarks/peers/sides.py``, importable together with the modules beside it."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        import sides

        yield sides
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "").parent == FOLDER:
            del sys.modules[name]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 pairs of one to nine invented words."""
    draw = random.Random(1)
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    lines = [
        "\t".join(
            " ".join("".join(draw.choices("abc", k=3)) for _ in range(draw.randint(1, 9)))
            for _ in range(2)
        )
        for _ in range(300)
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def losses(sides: ModuleType, file: Path) -> dict[str, list[float]]:
    """Losses of all sides in float64 without dropout."""
    import sizes

    size = sizes.Size(16, 2, 2, 48, lr=1e-2, batch_tokens=96, data={"valid": 20, "test": 20})
    setting = sides.Setting(size, file, STEPS, dropout=0.0, precision="float64")
    return {name: make()(STEPS).losses for name, make in sides.Sides(setting).makers.items()}


@pytest.mark.parametrize("name", EXACT)
def test_a_peer_has_the_losses_of_headtohead(name: str, losses: dict[str, list[float]]) -> None:
    own = losses["headtohead"]
    assert own[-1] < own[0] - 0.1, "the loss does not fall"
    assert losses[name] == pytest.approx(own, abs=1e-6)
