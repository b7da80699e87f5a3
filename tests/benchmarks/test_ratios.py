"""Speed ratios of variants: the baseline has ratio 1, and a slower variant gets fewer steps."""

import re


def test_a_deeper_variant_gets_fewer_steps_in_equal_time(benchmark, cache, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("H2H_CACHE", str(cache))
    file = tmp_path / "deep.yaml"
    file.write_text(
        "question: q?\nbase: {data: {dataset: copy, size: 100}, model: {d_model: 16, d_ff: 16, heads: 2},\n"
        "  train: {steps: 1000, batch_size: 8}}\nbaseline: {model.layers: 1}\n"
        "design: [{one_at_a_time: {model.layers: [8]}}]\n"
    )
    benchmark("ratios").main([str(file), "--rounds", "3"])
    lines = re.findall(r"^train.steps: (\d+) +# .*: ([\d.]+) times", capsys.readouterr().out, re.MULTILINE)
    assert lines[0] == ("1000", "1.00")
    assert float(lines[1][1]) > 2
    assert int(lines[1][0]) < 500
