"""Translating 1,000 sentences at notebook 3's sizes: its own loop, a plain beam, and ours.

    python benchmarks/translate.py --file ../shared/data/eng-spa.manythings-2019-07-21.2col.tsv.xz

The notebook translates one sentence at a time and computes the source and all words so far again
for every new word. Both sides have the same weights, as drawn, and the same sentences, in float32
on one thread, and take turns; the plain side is timed on a sample of the sentences, spread evenly
over their lengths, and scaled. With weights as drawn translations hardly ever end, so that there is
one table row for the notebook's own limit of 128 words, and others for shorter ones. Times are the
processor's.
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
from headtohead.model.transformer import Transformer
from headtohead.plugins.registry import current
from headtohead.schema.run_config import BeamConfig

Words = list[int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", type=Path, help="tab-separated pairs; default: toy sentences")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--sample", type=int, default=50, help="of them, on the plain side")
    parser.add_argument("--limits", type=int, nargs="+", default=[8, 32, 128], help="most words")
    parser.add_argument("--beam-limits", type=int, nargs="*", default=[8], help="with a beam of 4")
    parser.add_argument("--sizes", type=int, nargs="+", default=[TOGETHER], help="of our batches")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    pairs = notebook3.read(options.file) if options.file else toy()
    (sources, source_words), (targets, target_words) = (
        notebook3.numbered([pair[side] for pair in pairs]) for side in (0, 1)
    )
    ends = tuple(targets[0][place] for place in (0, -1))
    sides = Sides(source_words, target_words, (ends[0], ends[1]))
    chosen = sorted(random.Random(1).sample(sources, options.sentences), key=len)
    words = sum(map(len, chosen)) / len(chosen) - 2
    print(
        f"{len(chosen):,} sentences of {words:.1f} words on average; {source_words:,} and "
        f"{target_words:,} words; torch {torch.__version__}, {options.threads} thread(s)\n\n"
        "| decoding | most words | batch | plain, s | ours, s | ratio | the same words |\n"
        "|---|---:|---:|---:|---:|---:|---:|",
        flush=True,
    )
    searches = [(None, limit) for limit in options.limits]
    beams = [(BeamConfig(), limit) for limit in options.beam_limits]
    for (beam, limit), size in itertools.product([*searches, *beams], options.sizes):
        print(sides.row(chosen, options.sample, limit, beam, size), flush=True)


def toy() -> list[tuple[list[str], list[str]]]:
    """Return the pairs of toy-grammar, words between boundary tokens."""
    dataset = current().dataset("toy-grammar")
    corpus = dataset.load(dataset.Options(), "iid", Path())
    return [
        (["<sos>", *pair.source.split(), "<eos>"], ["<sos>", *pair.target.split(), "<eos>"]) for pair in corpus.pairs
    ]


class Sides:
    """The notebook's model and ours with the same weights."""

    def __init__(self, source_words: int, target_words: int, ends: tuple[int, int]) -> None:
        self.ends = ends
        torch.manual_seed(1)
        self.plain = notebook3.Model(source_words, target_words).eval()
        config = resolve({"recipe": "tatoeba-en-es"}, current())
        self.ours = Transformer(config, [1], source_words, target_words).eval()
        copy(self.plain, self.ours)

    def row(self, sentences: list[Words], sample: int, limit: int, beam: BeamConfig | None, size: int) -> str:
        """Translate in turns: some batches of ours, some sentences of the plain side."""
        lengths = [len(one) for one in sentences]
        batches = groups(lengths, size)
        every = len(sentences) / sample
        asked = [int((place + 0.5) * every) for place in range(sample)]
        seconds, found, expected = [0.0, 0.0], {}, {}
        for turn, batch in enumerate(batches):
            mine = [sentences[place] for place in batch]
            spent, texts = timed(lambda mine=mine: translate_each(self.ours, mine, limit, beam, *self.ends, size))
            seconds[1] += spent
            found |= dict(zip(batch, texts, strict=True))
            for place in asked[turn * sample // len(batches) : (turn + 1) * sample // len(batches)]:
                spent, expected[place] = timed(lambda place=place: self.plainly(sentences[place], limit, beam))
                seconds[0] += spent
        plain = seconds[0] * len(sentences) / sample
        same = sum(found[place] == words for place, words in expected.items())
        how = "greedy" if beam is None else f"beam of {beam.size}"
        return (
            f"| {how} | {limit} | {size} | {plain:,.0f} | {seconds[1]:,.1f} | "
            f"{plain / seconds[1]:.1f} | {same} of {sample} |"
        )

    @torch.no_grad()
    def plainly(self, source: Words, limit: int, beam: BeamConfig | None) -> Words:
        return self.greedy(source, limit) if beam is None else self.beam(source, limit, beam)

    def greedy(self, source: Words, limit: int) -> Words:
        """Write as the notebook's ``translate_sentence`` does, ids in and out."""
        sos, eos = self.ends
        read, written = torch.tensor([source]), [sos]
        for _ in range(limit):
            output = self.plain(read, torch.tensor([written])).squeeze(0)
            word = int(output.argmax(dim=-1)[-1])
            if word == eos:
                break
            written.append(word)
        return written[1:]

    def beam(self, source: Words, limit: int, beam: BeamConfig) -> Words:
        """Search in the notebook's manner: every hypothesis a sentence of its own."""
        sos, eos = self.ends
        read = torch.tensor([source])
        going: list[tuple[Words, float]] = [([sos], 0.0)]
        best: tuple[float, Words] = (-math.inf, [])
        for tokens in range(1, limit + 1):
            penalty = ((5 + tokens) / 6) ** beam.length_penalty
            ranked = []
            for words, likely in going:
                output = self.plain(read, torch.tensor([words]))[0, -1].log_softmax(dim=-1)
                chances, following = output.topk(beam.size + 1)
                ranked += [
                    (likely + chance, [*words, word])
                    for chance, word in zip(chances.tolist(), following.tolist(), strict=True)
                ]
            ranked.sort(key=lambda one: -one[0])
            for likely, words in ranked[: beam.size]:
                if words[-1] == eos and likely / penalty > best[0]:
                    best = (likely / penalty, words[1:-1])
            going = [(words, likely) for likely, words in ranked if words[-1] != eos][: beam.size]
            if best[0] >= going[0][1] / ((5 + limit) / 6) ** beam.length_penalty:
                return best[1]
        words, likely = going[0]
        return max(best, (likely / penalty, words[1:]))[1]


def timed(work: Callable[[], list]) -> tuple[float, list]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


@torch.no_grad()
def copy(plain: notebook3.Model, ours: Transformer) -> None:
    """Give ours the weights of the plain model."""
    ours.source_embedding.weight[0] = plain.source.weight
    ours.target_embedding.weight[0] = plain.target.weight
    fill(ours.words, plain.words)
    normalise(ours.encoder_norm, plain.encoder_norm)
    normalise(ours.decoder_norm, plain.decoder_norm)
    for one, other in ((ours.encoder, plain.encoder), (ours.decoder, plain.decoder)):
        for layer, theirs in zip(one, other, strict=True):
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
    """Copy linear layers that share an input, side by side."""
    ours.weight[0] = torch.cat([one.weight.T for one in plain], dim=1)
    ours.bias[0, 0] = torch.cat([one.bias for one in plain])


def normalise(ours: nn.Module, plain: nn.LayerNorm) -> None:
    weight: Tensor = plain.weight
    ours.weight[0, 0], ours.bias[0, 0] = weight, plain.bias


if __name__ == "__main__":
    main()
