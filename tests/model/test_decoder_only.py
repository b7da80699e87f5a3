"""A decoder-only model reads source and target as one sequence: labels, batches, prefill and generation."""

import pytest
import torch
from torch.nn import functional

from headtohead.config.builder import resolve
from headtohead.data.vocabulary import EOS, PAD, SOS
from headtohead.model.decoding import Ends, greedy, translate_each
from headtohead.model.loss import backward_loss
from headtohead.model.transformer import Transformer
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config, tiny_data
from headtohead.training.loop import split_tensors
from made import case_table, refused


def subject_of(**choices):
    """Return a subject whose outputs end at different steps."""
    subject = Subject(tiny_config(architecture="decoder-only", **choices), (4, 5))
    with torch.no_grad():
        subject.model.lm_head.weight *= 3.0
        subject.model.lm_head.bias[..., EOS] += 1.5
        subject.model.lm_head.bias[..., PAD] -= 100.0
    return subject


def prompts(members=2, rows=4, time=3):
    generator = torch.Generator().manual_seed(3)
    return torch.randint(4, 12, (members, rows, time), generator=generator)


@torch.no_grad()
def next_logits(model, member, ids):
    """Return the logits after a sequence, from one pass of the whole stack without a cache."""
    target = torch.tensor(ids).expand(model.members, 1, -1)
    none, lengths = target[:, :, :0], torch.full((model.members, 1), len(ids))
    return forward_ids(model, none, lengths * 0, target, lengths)[member, 0, -1]


def forward_ids(model, *arguments):
    return model(*arguments)


def greedy_loop(model, member, prompt, tokens):
    written = [*prompt, SOS]
    for _ in range(tokens):
        best = int(next_logits(model, member, written).argmax())
        if best == EOS:
            break
        written.append(best)
    return written[len(prompt) + 1 :]


@case_table(
    ("positional", "masking"),
    [
        (name, mask)
        for mask in ("padding-causal", "none")
        for name in ("sinusoidal", "rotary", "alibi", "t5-relative")
    ],
    default=3,
)
def test_generation_after_prefill_equals_a_loop_of_full_passes(positional, masking):
    subject, source = subject_of(positional=positional, masking=masking), prompts()
    found = greedy(subject.model, source, torch.full(source.shape[:2], source.shape[2]), 8)
    wanted = [
        [greedy_loop(subject.model, member, row, 8) for row in source[member].tolist()]
        for member in (0, 1)
    ]
    assert [
        [[token for token in row if token != PAD] for row in rows] for rows in found.tolist()
    ] == wanted
    assert masking == "none" or len({len(row) for rows in wanted for row in rows}) > 1


def test_sources_of_different_lengths_are_generated_in_separate_batches():
    model = Subject(tiny_config(architecture="decoder-only"), (4,)).model
    sources = [[4, 5], [6], [7, 8, 9], [5, 4]]
    found = translate_each(model, sources, 6, Ends())
    assert found == [greedy_loop(model, 0, source, 6) for source in sources]
    ragged = torch.tensor([[[4, 5], [6, PAD]]])
    with pytest.raises(ValueError, match="equal length only"):
        greedy(model, ragged, torch.tensor([[2, 1]]), 6)


def batch_and_model(**choices):
    config = tiny_config(architecture="decoder-only", **choices)
    data = tiny_data(shared=True)
    split = split_tensors(config, data, torch.device("cpu"))["train"]
    model = (
        Transformer(config, [1, 2], *(len(data.vocabulary(side)) for side in ("source", "target")))
        .double()
        .eval()
    )
    rows = torch.tensor([[0, 7, 19], [3, 3, 41]])
    return data, rows, split.batch(rows, *split.times(rows.flatten())), model


@pytest.mark.parametrize("masking", ["padding-causal", "causal"])
def test_training_batches_have_the_loss_of_plain_sequences(masking):
    data, rows, batch, model = batch_and_model(masking=masking)
    num_labels = batch.target_lengths.sum(1).double()
    losses = backward_loss(model, batch, int(num_labels.max()), num_labels, 0.0)
    gradient = model.target_embedding.weight.grad.clone()
    model.zero_grad()
    expected = torch.zeros(2, dtype=torch.float64)
    for member in (0, 1):
        for row in rows[member].tolist():
            source, target = (
                ids[row].tolist()
                for ids in (data.splits["train"].source, data.splits["train"].target)
            )
            ids = torch.tensor(source + target).expand(2, 1, -1)
            logits = forward_ids(
                model,
                ids[..., :0],
                torch.zeros(2, 1).long(),
                ids,
                torch.full((2, 1), len(ids[0, 0])),
            )
            own = logits[member, 0, len(source) : -1]  # labels: the target after <sos>
            expected[member] += functional.cross_entropy(
                own, torch.tensor(target[1:]), reduction="sum"
            )
    expected = expected / num_labels
    torch.testing.assert_close(losses, expected)
    expected.sum().backward()
    torch.testing.assert_close(gradient, model.target_embedding.weight.grad)


def test_the_model_has_no_encoder_and_one_table():
    model = Subject(tiny_config(architecture="decoder-only", encoder_layers=3)).model
    assert model.roles == ("decoder",)
    assert not [
        name for name, _ in model.named_parameters() if "encoder" in name or "cross" in name
    ]
    assert [name for name, _ in model.named_parameters() if "embedding" in name] == [
        "target_embedding.weight"
    ]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (
            {"model.architecture": "decoder-only", "data.vocabulary.shared": False},
            "a decoder-only model has one vocabulary; leave data.vocabulary.shared out",
        ),
        ({"model.encoder_layers": 0}, "for none, set model.architecture: decoder-only"),
        (
            {"model.architecture": "decoder"},
            "expected 'encoder-decoder' or 'decoder-only', got 'decoder'",
        ),
    ],
)
def test_contradictions_are_refused(raw, reason):
    assert reason in refused(resolve, {"train": {"epochs": 1}} | raw)


def test_one_vocabulary_is_the_union_of_both_sides():
    config = resolve({"train": {"epochs": 1}, "model.architecture": "decoder-only"})
    assert config.data.vocabulary.shared
    together, apart = tiny_data(shared=True), tiny_data()
    assert {*together.target_vocabulary.words} == {
        *apart.source_vocabulary.words,
        *apart.target_vocabulary.words,
    }
