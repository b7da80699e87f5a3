"""``h2h show`` prints a run's records, as text and as JSON."""

import json

import yaml


def test_a_run_is_shown_with_its_configuration_as_text_and_json(h2h, made, tmp_path):
    folder = made.write_study(tmp_path / "runs", made.Study(axes={"positional": ["rotary"]}, seeds=(1,), maps=False))
    (run,) = (path.parent for path in folder.glob("*/run.json"))
    record, results = (json.loads((run / name).read_text()) for name in ("run.json", "results.json"))

    code, output = h2h("show", run.name)
    assert code == 0, output
    assert output.startswith(f"{record['title']}, seed 1: DONE at step 900 of ")
    assert f"  test/exact_match: {results['metrics']['test/exact_match']:.3f}\n" in output
    assert "  results.json: " in output
    shown = output.partition("\nconfiguration\n")[2].partition("\n\n")[0]

    code, output = h2h("show", run.name, "--format", "json")
    assert code == 0, output
    found = json.loads(output)
    assert (found["state"], found["metrics"]) == ("DONE", results["metrics"])
    assert found["run"]["run_hash"] == record["run_hash"]
    assert yaml.safe_load(shown) == found["run"]["config"]
