"""What Python users read from finished runs: training curves and loaded runs, with the decoding of their evaluation."""

import json
import re
from pathlib import Path

import pytest
import torch

import headtohead as h2h
from headtohead.execution.head_ablation import masked_heads
from headtohead.execution.loaded import LoadedRun
from made.study import TINY, Study


@pytest.fixture
def loaded(undisturbed: Study) -> LoadedRun:
    """A loaded run; its data are in the cache of the environment."""
    return h2h.load(undisturbed.directories()[0])


def test_curves_have_every_value_of_every_history_with_variant_axes_and_seed(undisturbed: Study) -> None:
    curves = h2h.curves(undisturbed.file, runs=undisturbed.runs)
    assert list(curves) == ["run", "variant", "seed", "step", "epoch", "metric", "value"]
    written = {}
    for run in undisturbed.directories():
        seed = json.loads((run / "run.json").read_text(encoding="utf-8"))["seed"]
        for text in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            values = {metric: value for metric, value in line.items() if metric not in ("step", "epoch", "time")}
            for metric, value in values.get("values", values).items():
                written[run.name, seed, line["step"], metric] = value
    read = curves.set_index(["run", "seed", "step", "metric"])["value"]
    assert read.to_dict() == written
    assert set(curves["variant"]) == {"baseline"}
    losses = curves[curves["metric"] == "valid/loss"]
    assert losses.groupby("seed")["step"].apply(list).to_dict() == {1: [20, 40, 60], 2: [20, 40, 60]}


def test_the_tokenizer_has_the_ids_of_training_and_returns_normalised_text(loaded: LoadedRun) -> None:
    tokenizer, split = loaded.tokenizer, loaded.data.splits["train"]
    for side in ("source", "target"):
        text, ids = (getattr(split, f"{side}_text")[0], getattr(split, side)[0])
        assert tokenizer.encode(text, side) == ids.tolist()
        assert tokenizer.decode(torch.tensor(ids), side) == text
        special = tokenizer.special_ids(side)
        tokens = tokenizer.tokens(ids, side)
        assert tokens == (["<sos>"] if side == "target" else []) + [*text.split(), "<eos>"]
        assert (special["eos"], special["pad"]) == (ids[-1], 0)
        assert tokenizer.tokens(range(tokenizer.vocab_size(side)), side) == loaded.data.vocabulary(side).words
    assert tokenizer.tokens(tokenizer.encode("the gnu sees")) == ["the", "<unk>", "sees", "<eos>"]


def test_forward_with_one_member_returns_the_logits_of_the_run(loaded: LoadedRun) -> None:
    source = torch.tensor([loaded.tokenizer.encode("the cat sees a dog")])
    target = torch.tensor([loaded.tokenizer.encode("le chat mange", "target")])
    lengths = [torch.tensor([[ids.shape[1]]]) for ids in (source, target)]
    logits = loaded.model(source.unsqueeze(0), lengths[0], target.unsqueeze(0), lengths[1])
    assert logits.shape == (1, 1, target.shape[1], loaded.tokenizer.vocab_size("target"))
    assert torch.equal(logits[0], loaded.logits(source, target))
    logits.sum().backward()
    assert all(weights.shape[0] == 1 and weights.grad is not None for weights in loaded.model.parameters())


def test_the_hook_of_the_page_appends_each_evaluation(study: Study) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "loggers.md"
    (hook,) = re.findall(
        r"^```python\n([^`]*def on_evaluation.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    (study.folder / "evaluations.py").write_text(hook, encoding="utf-8")
    study.write(base={"train": {"steps": 4, "evaluate_every": 2}})
    study.run("--plugin", "evaluations.py")
    lines = [json.loads(line) for line in (study.experiment / "evaluations.jsonl").read_text("utf-8").splitlines()]
    assert sorted((line.pop("run"), line.pop("step")) for line in lines) == [
        (run.name, step) for run in study.directories() for step in (2, 4)
    ]
    assert all(line["train/loss"] > 0 and line["valid/loss"] > 0 for line in lines)


def test_an_experiment_is_a_dict_with_a_name_and_a_run_in_a_script_prints_progress(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = TINY | {"seeds": 1, "base": TINY["base"] | {"train": {"steps": 4, "batch_tokens": 128}}}
    with pytest.raises(h2h.HeadToHeadError, match="needs a name"):
        h2h.plan(content)
    assert h2h.plan(content, name="mine", runs=tmp_path / "runs").name == "mine"
    done = h2h.run(content, name="mine", runs=tmp_path / "runs", tracking=False, workers=1)
    assert done.complete
    output = capsys.readouterr()
    assert "[1/1] " in output.err
    assert "report: " in output.out


def test_a_loaded_run_decodes_like_its_evaluation(study: Study) -> None:
    task = {"dataset": "reverse", "split": "length", "longest": 4, "test_each": 3, "alphabet": 4}
    train = {"steps": 10, "lr": 0.05, "evaluate_every": 10}
    study.write(base={"data": task, "model": {"dropout": 0.0}, "train": train}, seeds=1, probes=["3 2 1"])
    study.run()
    (run,) = study.directories()
    loaded, results = h2h.load(run), json.loads((run / "results.json").read_text())
    longest = [max(len(text.split()) for text in loaded.data.splits[name].target_text) for name in ("train", "test")]
    assert longest == [4, 8]
    limit = (longest[0] + 1) * 3 // 2
    recorded = json.loads((run / "run.json").read_text())["decoding_limit"]
    assert loaded.decoding_limit == recorded == results["decoding"]["max_length"] == limit == 7
    rows = [row.split("\t") for row in (run / "translations.tsv").read_text().splitlines()[1:]]
    assert max(len(hypothesis.split()) for _, _, hypothesis, _ in rows) == limit  # the limit matters
    assert loaded.translate([source for source, *_ in rows]) == [hypothesis for _, _, hypothesis, _ in rows]
    whole = masked_heads(run)["whole"]
    assert {f"test/{name}": whole[name] for name in ("bleu", "exact_match")}.items() <= results["metrics"].items()
