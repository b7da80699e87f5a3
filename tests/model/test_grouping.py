"""Grouped translation equals translation in batches of one sentence."""

import torch

from headtohead.data.vocabulary import EOS
from headtohead.model.decoding import Ends
from headtohead.model.grouping import hides_padding, translate_each
from headtohead.schema.run_config import BeamConfig
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from made import case_table

LENGTHS = (3, 6, 3, 2, 6, 5, 3)
MORE = (4, 5, 2, 6, 4)


def subject_of(ending=2.0, **choices):
    subject = Subject(tiny_config(**choices), seeds=(1,))
    with torch.no_grad():
        subject.model.lm_head.weight *= 4.0
        for layer in subject.model.decoder:
            layer.cross.output.weight *= 8.0
        subject.model.lm_head.bias[..., EOS] += ending
    return subject


def drawn():
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(4, 12, (length,), generator=generator).tolist() for length in LENGTHS + MORE]


BY_ROW = {"name": "sinusoidal", "index": "row"}


GREEDY, BEAM = None, BeamConfig(size=3)


@case_table(
    ("choices", "beam"),
    [
        ({}, GREEDY),
        ({"masking": "none"}, GREEDY),
        ({"masking": "causal"}, BEAM),
        ({"positional": BY_ROW}, GREEDY),
        ({}, BEAM),
        ({"masking": "none"}, BEAM),
        ({"masking": "causal"}, GREEDY),
        ({"attention": "sigmoid", "masking": "causal"}, GREEDY),
        ({"attention": "sigmoid", "masking": "causal"}, BEAM),
    ],
    ids=str,
    default=1,
)
def test_grouped_sentences_are_translated_as_in_batches_of_one(choices, beam):
    model, sources = subject_of(**choices).model, drawn()
    together = translate_each(model, sources, 10, beam, Ends())
    single = [translate_each(model, [source], 10, beam, Ends())[0] for source in sources]
    assert together == single
    assert translate_each(model, sources, 10, beam, Ends(), size=2) == single
    assert len({tuple(tokens) for tokens in together}) > 2


def test_padding_is_hidden_only_if_every_mask_hides_it():
    assert hides_padding(subject_of().model)
    assert hides_padding(subject_of(masking="padding").model)
    for role in ("encoder", "cross"):
        scheme = {"encoder": "padding", "decoder": "causal", "cross": "padding"} | {role: "none"}
        assert not hides_padding(subject_of(masking=scheme).model)
    without_source = {"encoder": "padding", "decoder": "causal", "cross": "causal"}
    assert hides_padding(subject_of(masking=without_source, quirks={"cross_attention_memory": "decoder"}).model)
