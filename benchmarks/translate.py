"""Translation of 1,000 sentences at notebook 3's sizes: a plain loop and beam against headtohead.

    python benchmarks/translate.py --file PAIRS

The notebook translates a single sentence at a time and encodes the source and all previous tokens
again for every new token. Both sides have the same initial weights and the same sentences, in
float32 on one thread, and alternate. The plain side is timed on a sample of sentences, spread evenly
over their lengths, and scaled. headtohead translates again with ``precision: bfloat16``. With initial
weights, translations rarely end before the limit, so that the table has a row for the notebook's limit
of 128 tokens and rows for smaller limits. Times are processor times.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import time
from collections.abc import Callable
from pathlib import Path

import notebook3
import torch
from torch import Tensor, nn

from headtohead.config.resolve import resolve
from headtohead.model.grouping import TOGETHER, groups, translate_each
from headtohead.model.precision import products_of
from headtohead.model.transformer import Transformer
from headtohead.plugins.registry import current
from headtohead.schema.run_config import BeamConfig

Ids = list[int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", type=Path, help="tab-separated pairs; default: toy sentences")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--sample", type=int, default=50, help="sentences of the plain side")
    parser.add_argument("--limits", type=int, nargs="+", default=[8, 32, 128], help="largest numbers of tokens")
    parser.add_argument("--beam-limits", type=int, nargs="*", default=[8], help="the same with a beam of 4")
    parser.add_argument("--sizes", type=int, nargs="+", default=[TOGETHER], help="batch sizes of headtohead")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    pairs = notebook3.read(options.file) if options.file else toy()
    (sources, source_words), (targets, target_words) = (
        notebook3.numbered([pair[side] for pair in pairs]) for side in (0, 1)
    )
    ends = tuple(targets[0][index] for index in (0, -1))
    sides = Sides(source_words, target_words, (ends[0], ends[1]))
    chosen = sorted(random.Random(1).sample(sources, options.sentences), key=len)
    words = sum(map(len, chosen)) / len(chosen) - 2
    print(
        f"{len(chosen):,} sentences of {words:.1f} words on average; {source_words:,} and "
        f"{target_words:,} words; torch {torch.__version__}, {options.threads} thread(s)\n\n"
        "| decoding | token limit | batch | plain, s | headtohead, s | ratio | equal translations | bfloat16, s "
        "| float32 / bfloat16 |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        flush=True,
    )
    searches = [(None, limit) for limit in options.limits]
    beams = [(BeamConfig(), limit) for limit in options.beam_limits]
    for (beam, limit), size in itertools.product([*searches, *beams], options.sizes):
        print(sides.row(chosen, options.sample, limit, beam, size), flush=True)


def toy() -> list[tuple[list[str], list[str]]]:
    """Return the pairs of toy-grammar, with boundary tokens."""
    dataset = current().dataset("toy-grammar")
    corpus = dataset.load(dataset.Options(), "iid", Path())
    return [
        (["<sos>", *pair.source.split(), "<eos>"], ["<sos>", *pair.target.split(), "<eos>"]) for pair in corpus.pairs
    ]


class Sides:
    """The notebook's model and headtohead's model with the same weights."""

    def __init__(self, source_words: int, target_words: int, ends: tuple[int, int]) -> None:
        self.ends = ends
        torch.manual_seed(1)
        self.plain = notebook3.Model(source_words, target_words).eval()
        self.ours, self.rounded = (
            Transformer(
                resolve({"recipe": "tatoeba-en-es", "train": {"precision": precision}}, current()),
                [1],
                source_words,
                target_words,
            ).eval()
            for precision in ("float32", "bfloat16")
        )
        for model in (self.ours, self.rounded):
            copy(self.plain, model)

    def row(self, sentences: list[Ids], sample: int, limit: int, beam: BeamConfig | None, size: int) -> str:
        """Translate in alternating turns of both sides and return a row of the table."""
        batches = groups([len(sentence) for sentence in sentences], size)
        every = len(sentences) / sample
        sampled = [int((index + 0.5) * every) for index in range(sample)]
        plain_seconds, seconds, rounded_seconds, translations, expected = 0.0, 0.0, 0.0, {}, {}
        for turn, batch in enumerate(batches):
            sources = [sentences[index] for index in batch]
            spent, texts = timed(lambda sources=sources: self.translate(self.ours, sources, limit, beam, size))
            seconds += spent
            spent, _ = timed(lambda sources=sources: self.translate(self.rounded, sources, limit, beam, size))
            rounded_seconds += spent
            translations |= dict(zip(batch, texts, strict=True))
            for index in sampled[turn * sample // len(batches) : (turn + 1) * sample // len(batches)]:
                spent, expected[index] = timed(
                    lambda source=sentences[index]: self.translate_plain(source, limit, beam)
                )
                plain_seconds += spent
        plain = plain_seconds * len(sentences) / sample
        same = sum(translations[index] == tokens for index, tokens in expected.items())
        decoding = "greedy" if beam is None else f"beam of {beam.size}"
        return (
            f"| {decoding} | {limit} | {size} | {plain:,.0f} | {seconds:,.1f} | "
            f"{plain / seconds:.1f} | {same} of {sample} | {rounded_seconds:,.1f} | {seconds / rounded_seconds:.1f} |"
        )

    def translate(
        self, model: Transformer, sources: list[Ids], limit: int, beam: BeamConfig | None, size: int
    ) -> list[Ids]:
        with products_of(model):
            return translate_each(model, sources, limit, beam, *self.ends, size)

    @torch.no_grad()
    def translate_plain(self, source: Ids, limit: int, beam: BeamConfig | None) -> Ids:
        return self.greedy(source, limit) if beam is None else self.beam(source, limit, beam)

    def greedy(self, source: Ids, limit: int) -> Ids:
        """Decode as the notebook's ``translate_sentence``, with ids as input and output."""
        sos, eos = self.ends
        source_ids, decoded = torch.tensor([source]), [sos]
        for _ in range(limit):
            output = self.plain(source_ids, torch.tensor([decoded])).squeeze(0)
            token = int(output.argmax(dim=-1)[-1])
            if token == eos:
                break
            decoded.append(token)
        return decoded[1:]

    def beam(self, source: Ids, limit: int, beam: BeamConfig) -> Ids:
        """Search in the style of the notebook, with a separate pass for every hypothesis."""
        sos, eos = self.ends
        source_ids = torch.tensor([source])
        open_hypotheses: list[tuple[Ids, float]] = [([sos], 0.0)]
        best: tuple[float, Ids] = (-math.inf, [])
        for length in range(1, limit + 1):
            penalty = ((5 + length) / 6) ** beam.length_penalty
            ranked = []
            for tokens, score in open_hypotheses:
                output = self.plain(source_ids, torch.tensor([tokens]))[0, -1].log_softmax(dim=-1)
                values, following = output.topk(beam.size + 1)
                ranked += [
                    (score + value, [*tokens, token])
                    for value, token in zip(values.tolist(), following.tolist(), strict=True)
                ]
            ranked.sort(key=lambda hypothesis: -hypothesis[0])
            for score, tokens in ranked[: beam.size]:
                if tokens[-1] == eos and score / penalty > best[0]:
                    best = (score / penalty, tokens[1:-1])
            open_hypotheses = [(tokens, score) for score, tokens in ranked if tokens[-1] != eos][: beam.size]
            if best[0] >= open_hypotheses[0][1] / ((5 + limit) / 6) ** beam.length_penalty:
                return best[1]
        tokens, score = open_hypotheses[0]
        return max(best, (score / penalty, tokens[1:]))[1]


def timed(work: Callable[[], list]) -> tuple[float, list]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


@torch.no_grad()
def copy(plain: notebook3.Model, ours: Transformer) -> None:
    """Copy the weights of the plain model to headtohead's model."""
    ours.source_embedding.weight[0] = plain.source.weight
    ours.target_embedding.weight[0] = plain.target.weight
    fill(ours.lm_head, plain.words)
    normalise(ours.encoder_norm, plain.encoder_norm)
    normalise(ours.decoder_norm, plain.decoder_norm)
    for layers, plain_layers in ((ours.encoder, plain.encoder), (ours.decoder, plain.decoder)):
        for layer, theirs in zip(layers, plain_layers, strict=True):
            first, *second = theirs.attentions
            fill(layer.attention.queries_keys_values, first.q, first.k, first.v)
            fill(layer.attention.output, first.o)
            branches = [layer.attention_branch, layer.feed_forward_branch]
            for cross in second:
                fill(layer.cross.queries, cross.q)
                fill(layer.cross.keys_values, cross.k, cross.v)
                fill(layer.cross.output, cross.o)
                branches.insert(1, layer.cross_branch)
            fill(layer.feed_forward.inner, theirs.feed_forward[0])
            fill(layer.feed_forward.outer, theirs.feed_forward[2])
            for branch, norm in zip(branches, theirs.norms, strict=True):
                normalise(branch.norm, norm)


def fill(ours: nn.Module, *plain: nn.Linear) -> None:
    """Copy linear layers with the same input, concatenated."""
    ours.weight[0] = torch.cat([linear.weight.T for linear in plain], dim=1)
    ours.bias[0, 0] = torch.cat([linear.bias for linear in plain])


def normalise(ours: nn.Module, plain: nn.LayerNorm) -> None:
    weight: Tensor = plain.weight
    ours.weight[0, 0], ours.bias[0, 0] = weight, plain.bias


if __name__ == "__main__":
    main()
