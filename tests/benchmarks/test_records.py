"""Records of public benchmarks: moderated variances, the power of Welch's test, and records with their earlier runs."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

pytestmark = pytest.mark.slow


def test_moderated_variances_are_those_of_another_implementation(benchmark):
    rng = np.random.default_rng(3)
    deviations = rng.gamma(2.0, 1.0, size=40)
    groups = [rng.normal(0, sd, size=rng.integers(2, 9)) for sd in deviations]
    found = benchmark("step_tests").moderated(groups)
    expected = benchmark("recompute_records").shrunk_variances(groups)
    assert [variance.value for variance in found] == pytest.approx(expected.variances)
    assert [variance.degrees for variance in found] == pytest.approx(expected.free)
    assert 1 < expected.added < 20


def test_variances_that_differ_by_chance_are_pooled(benchmark):
    groups = [[0.0, 1.0, 2.0 + 0.01 * number] for number in range(9)]
    step_tests = benchmark("step_tests")
    variances = step_tests.moderated(groups)
    assert set(variances) == {step_tests.pooled(groups)}
    assert variances[0].degrees == 18
    assert variances[0].value == pytest.approx(1.04, abs=0.01)
    side = step_tests.Side(variances[0], 3)
    expected = stats.t.sf(1.0 / math.sqrt(2 * variances[0].value / 3), 18) * 2
    assert step_tests.moderated_p(1.0, [side, side], 18) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("effect", "seeds", "level", "expected"),
    [(-3.9, (3, 3), 0.05 / 25, 0.11), (-2.0, (6, 6), 0.05, 0.87), (0.0, (5, 5), 0.05, 0.0)],
)
def test_the_power_is_that_of_other_simulations(benchmark, effect, seeds, level, expected):
    found = benchmark("step_tests").welch_power(effect, seeds, level)
    assert found == pytest.approx(expected, abs=0.02)
    if effect:
        other = benchmark("recompute_records").power(effect, *seeds, level)
        assert found == pytest.approx(other / 100, abs=0.015)


def write_runs(folder: Path, runs: list[tuple[float, float]], steps: int) -> None:
    folder.mkdir(parents=True)
    for number, (loss, seconds) in enumerate(runs):
        lines = ["s:0", f"step:10/{steps} val_loss:9.0 train_time:1ms"]
        lines.append(f"step:{steps}/{steps} val_loss:{loss} train_time:{1000 * seconds:.0f}ms")
        (folder / f"run{number}.txt").write_text("\n".join(lines) + "\n")


def test_a_record_is_compared_with_the_best_baseline_of_its_hardware(benchmark, tmp_path):
    track = tmp_path / "records" / "track_1_short"
    slow = [(3.2, 900.0), (3.201, 901.0)]
    write_runs(track / "2026-01-01_New" / "baseline-1gpu", slow, 100)
    write_runs(track / "2026-01-01_New" / "baseline-a", [(3.29, 90.0), (3.291, 90.2)], 100)
    near = [(3.279, 92.0), (3.281, 92.1), (3.280, 92.2)]
    write_runs(track / "2026-01-01_New" / "baseline-b", near, 110)
    new = [(3.2805, 80.0), (3.2795, 80.1), (3.2790, 80.2)]
    write_runs(track / "2026-01-01_New" / "this", new, 105)
    write_runs(track / "2026-01-01_New" / "once", [(3.0, 70.0)], 105)
    write_runs(track / "2026-01-02_Other" / "this", new, 105)
    text = benchmark("records").reruns_text(tmp_path)
    assert "1 variants of 1 records are compared. **1 variants are faster**, 0 slower." in text
    assert "| this | baseline-b | 3, 3 | 105, not 110 | −12.00 |" in text
    recomputed = benchmark("recompute_records").recomputed_reruns
    for shown, different in ((text, 0), (text.replace("−12.00", "−12.01"), 1)):
        cells = recomputed(shown.replace("−", "-"), track)
        assert sum(printed != value for _, printed, value in cells) == different
