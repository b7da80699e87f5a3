from typing import Annotated

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headtohead.config.builder import resolve
from headtohead.config.entries import parsed_options, plugins_of
from headtohead.config.identity import identity_fields, run_hash, run_identity
from headtohead.planning.schedule import learning_rate
from headtohead.plugins.registry import use_files
from headtohead.schema.run_config import EntryConfig, RunConfig
from headtohead.schema.sections import NotHashed, OmittedAtDefault
from made import refused

DATA_HASH = "f" * 64

# Frozen: a changed hash makes every existing result unusable. If a change is intended (such as a
# new default), describe it in the changelog and update the hashes.
GOLDEN = {
    "default": (
        {"train": {"epochs": 1}},
        "128ba4b6c169c76f282858c1de2055809690f8e0491a1ddfbbefbe89abf51a1a",
    ),
    "every family": (
        {
            "train": {"steps": 100, "lr": 1e-4, "schedule": "constant"},
            "positional": {"name": "learned", "max_length": 64},
            "attention": {"name": "grouped-query", "kv_heads": 1},
            "masking": "causal",
        },
        "ad3373f3588e3b22a617705ec43804e7dfacd49469352993cc11df0b928e15bb",
    ),
    "sections": (
        {
            "train": {"epochs": 2.5, "early_stopping": {"patience": 2}, "clip_norm": None},
            "model": {"d_model": 64, "layers": 3, "norm": "post", "mask_value": "additive"},
            "data": {"dataset": "toy-grammar", "size": 500, "split": "length", "limit": 100},
            "evaluate": {"unpadded": False, "buckets": [4, 8]},
        },
        "6e0c4d03a89d8ee462980f96bb297ee4a3d7cb4690134daad70b37cbe02600b1",
    ),
}


@pytest.fixture
def hash_of():
    def hash_of(seed=1, data_hash=DATA_HASH, **raw):
        config = resolve({"train": {"epochs": 1}} | raw)
        return run_hash(config, seed, data_hash)

    return hash_of


@pytest.mark.parametrize("name", GOLDEN)
def test_run_hashes_do_not_change(name):
    raw, wanted = GOLDEN[name]
    assert run_hash(resolve(raw), 1, DATA_HASH) == wanted


@pytest.mark.parametrize(
    ("settings", "other"),
    [
        ({}, {"positional": "sinusoidal", "attention": "split-heads", "masking": "padding-causal"}),
        (
            {"model": {"layers": 2}},
            {"model": {"layers": 5, "encoder_layers": 2}, "model.decoder_layers": 2},
        ),
        (
            {"model": {"dropout": 0.3}},
            {
                "model": {
                    f"dropout_{part}": 0.3 for part in ("embedding", "attention", "ffn", "residual")
                }
            },
        ),
        ({}, {"data": {"split": "iid", "normalise": "none"}}),
        (
            {"positional": "rotary"},
            {
                "positional": {
                    "encoder": {"name": "rotary", "theta": 10000},
                    "decoder": {"name": "rotary", "theta": 1e4},
                    "cross": "none",
                }
            },
        ),
        (
            {"masking": "causal"},
            {"masking.encoder": "none", "masking.cross": "none", "masking.decoder": "causal"},
        ),
        ({}, {"evaluate": {"decode": "greedy"}}),
    ],
)
def test_two_notations_of_a_configuration_have_the_same_hash(hash_of, settings, other):
    assert hash_of(**settings) == hash_of(**other)


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"final_norm": False}},
        {"train": {"steps": 1}},
        {"positional": {"name": "rotary", "theta": 1}},
        {"masking.decoder": "causal"},
        {"data": {"size": 500}},
        {"evaluate": {"unpadded": False}},
        {"evaluate": {"decode": "none"}},
        {"train": {"epochs": 1, "length_buckets": "exact"}},
        {"train": {"epochs": 1, "precision": "float64"}},
        {"seed": 2},
        {"data_hash": "0" * 64},
    ],
)
def test_fields_that_change_a_result_change_the_hash(hash_of, change):
    assert hash_of(**change) != hash_of()


@pytest.mark.parametrize("runtime", [{"num_microbatches": 4}, {"checkpoint_seconds": 1}])
def test_runtime_fields_do_not_change_the_hash(hash_of, runtime):
    assert hash_of(train={"epochs": 1} | runtime) == hash_of()


def test_every_field_of_the_schema_is_hashed_unless_it_is_annotated():
    hashed = run_identity(resolve({"train": {"epochs": 1}}), "")["config"]
    for section, info in RunConfig.model_fields.items():
        if OmittedAtDefault() in info.metadata:
            assert section not in hashed
            continue
        fields = getattr(info.annotation, "model_fields", {})
        for name, field in fields.items():
            left_out = any(
                isinstance(annotation, NotHashed | OmittedAtDefault)
                for annotation in field.metadata
            )
            assert (name in hashed[section]) is not left_out, f"{section}.{name}"


def test_a_decoder_only_hash_has_the_architecture_and_nothing_of_an_encoder(hash_of):
    decoder = {"model.architecture": "decoder-only"}
    assert hash_of(**{"model.architecture": "encoder-decoder"}) == hash_of() != hash_of(**decoder)
    for unused in (
        {"model.encoder_layers": 7},
        {"positional.encoder": "rotary"},
        {"masking.cross": "none"},
    ):
        assert hash_of(**decoder, **unused) == hash_of(**decoder)
    for tied, same in (("all", "output"), ("embeddings", "none")):
        tied_hash, same_hash = (
            hash_of(**decoder, **{"model.tie_embeddings": value}) for value in (tied, same)
        )
        assert tied_hash == same_hash
    for used in (
        {"model.decoder_layers": 7},
        {"positional.decoder": "rotary"},
        {"masking.decoder": "none"},
    ):
        assert hash_of(**decoder, **used) != hash_of(**decoder)


@pytest.mark.parametrize(
    ("family", "default", "other"),
    [("feed_forward", "relu", "swiglu"), ("norm", "layernorm", "rmsnorm")],
)
def test_a_default_feed_forward_or_norm_is_not_in_the_hash(hash_of, family, default, other):
    assert hash_of(**{family: default}) == hash_of(**{family: {"encoder": default}}) == hash_of()
    hashes = {
        hash_of(**{family: value})
        for value in (default, other, {"encoder": other}, {"decoder": other})
    }
    assert len(hashes) == 4
    decoder = {"model.architecture": "decoder-only"}
    assert hash_of(**decoder, **{family: {"encoder": other}}) == hash_of(
        **decoder, **{family: default}
    )
    assert hash_of(**decoder, **{family: {"decoder": other}}) == hash_of(
        **decoder, **{family: other}
    )


LINEAR = """
from pydantic import Field
from headtohead.plugin import Moment, Options, Schedule, hookimpl

class LinearOptions(Options):
    final_lr: float = Field(0.0, ge=0, description="learning rate of the last step")

class Linear(Schedule):
    Options = LinearOptions

    def rate(self, moment):
        final_lr = self.options.final_lr
        return final_lr + (moment.lr - final_lr) * (1 - moment.step / moment.steps)

@hookimpl
def register_schedules():
    return {"linear": Linear}
"""


@pytest.fixture
def linear(tmp_path, own_registry):
    """Register the schedule ``linear`` of a plugin file."""
    file = tmp_path / "linear.py"
    file.write_text(LINEAR)
    use_files([file])
    return file


def scheduled(schedule):
    train = {"steps": 100, "warmup_steps": 0, "lr": 1e-3, "schedule": schedule}
    return resolve({"train": train})


def test_a_schedule_of_a_plugin_file_is_hashed_with_its_options(linear):
    plain, ending = scheduled("linear"), scheduled({"name": "linear", "final_lr": 1e-4})
    hashes = [run_hash(config, 1, DATA_HASH) for config in (plain, ending, scheduled("cosine"))]
    assert len(set(hashes)) == 3
    assert run_hash(scheduled({"name": "linear", "final_lr": 0.0}), 1, DATA_HASH) == hashes[0]
    rates = [
        [learning_rate(config.train, step, 100) for step in (100, 50)] for config in (plain, ending)
    ]
    assert rates == [pytest.approx([0, 5e-4]), pytest.approx([1e-4, 5.5e-4])]
    assert "schedule/linear" in [entry.label for entry in plugins_of(ending)]
    stored = RunConfig.model_validate_json(ending.model_dump_json())
    assert parsed_options(stored, "x") == ending


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("linaer", "unknown schedule 'linaer'; did you mean 'linear'?"),
        ({"name": "linear", "final": 1}, "unknown field 'final'; did you mean 'final_lr'?"),
        ({"name": "linear", "final_lr": -1}, "must be greater than or equal to 0, got -1"),
        (["linear"], "expected one entry, got ['linear']; to compare values, type design:"),
    ],
)
def test_a_wrong_schedule_is_one_line(linear, schedule, message):
    assert message in refused(scheduled, schedule)


def test_an_option_of_another_schedule_names_the_schedules_that_have_it(linear):
    raw = {"train.steps": 1, "train.schedule": "constant", "train.schedule.final_lr": 1}
    assert refused(resolve, raw).endswith(
        "schedule 'constant' has no option 'final_lr'; cosine, linear, wsd have it"
    )


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize(
    ("rate", "message"),
    [
        ("-1.0", "rate returned -1.0 for step 2 of 10; expected a finite number of at least 0"),
        ("float('nan')", "rate returned nan for step 2 of 10"),
        ("None", "rate returned None for step 2 of 10"),
        ("1 / (moment.step - 4)", "rate returned -0.5 for step 2 of 10"),
    ],
)
def test_a_schedule_with_an_invalid_rate_is_refused_when_it_is_loaded(tmp_path, rate, message):
    file = tmp_path / "linear.py"
    file.write_text(
        LINEAR.replace("final_lr + (moment.lr - final_lr) * (1 - moment.step / moment.steps)", rate)
    )
    assert f"schedule 'linear' is invalid: TypeError: {message}" in refused(use_files, [file])


def test_options_of_a_plugin_can_be_excluded_from_the_hash():
    from headtohead.plugins.entry import Options
    from headtohead.plugins.positional import Positional

    class GrownOptions(Options):
        theta: float = 1.0
        path: Annotated[str, NotHashed()] = "here"

    def hashed(**options):
        return identity_fields(EntryConfig(name="x", options=GrownOptions(**options)))["options"]

    assert hashed(theta=2.0, path="there") == {"theta": 2.0}
    assert Positional.Options is Options


raws = st.fixed_dictionaries(
    {
        "positional": st.sampled_from(["none", "rotary", "sinusoidal", "alibi"]),
        "masking": st.sampled_from(["none", "padding", "causal", "padding-causal"]),
        "model": st.fixed_dictionaries(
            {
                "d_model": st.sampled_from([8, 16]),
                "norm": st.sampled_from(["pre", "post"]),
                "dropout": st.sampled_from([0.0, 0.1]),
            }
        ),
        "train": st.fixed_dictionaries({"steps": st.integers(1, 3)}),
    }
)


@settings(max_examples=25, deadline=None)
@given(first=raws, other=raws, seeds=st.tuples(st.integers(1, 3), st.integers(1, 3)))
def test_hashes_are_equal_if_and_only_if_configuration_and_seed_are(first, other, seeds):
    hashes = [
        run_hash(resolve(raw), seed, DATA_HASH)
        for raw, seed in zip((first, other), seeds, strict=True)
    ]
    assert (hashes[0] == hashes[1]) == ((first, seeds[0]) == (other, seeds[1]))


@settings(max_examples=30, deadline=None)
@given(raw=raws)
def test_a_stored_configuration_has_the_same_hash(raw):
    config = resolve(raw)
    stored = parsed_options(RunConfig.model_validate_json(config.model_dump_json()), "x")
    assert stored == config
    assert run_hash(stored, 1, DATA_HASH) == run_hash(config, 1, DATA_HASH)


def test_options_that_no_class_has_parsed_are_not_hashed_without_their_content():
    config = RunConfig.model_validate_json(resolve({"train": {"epochs": 1}}).model_dump_json())
    with pytest.raises(AssertionError, match="recorded options"):
        run_hash(config, 1, DATA_HASH)
