"""A seed determines the model, a checkpoint holds it, its members are independent, and a pass changes nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from headtohead.model.attention import overrides
from headtohead.model.decoding import greedy
from headtohead.model.transformer import Transformer
from headtohead.plugins.attention import Attention
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import SentenceBatch, Subject, explicit_forward, forward
from headtohead.testing.verdict import LOGITS, Verdict, logit_changes, violated, within, worst


@invariant("parameter-count")
def parameter_count_equals_the_closed_form(subject: Subject) -> Verdict:
    """The number of parameters of a member equals a closed form; of entries: every layer creates as many as the first.

    The closed form has no formula for the parameters that an entry creates. It counts those of the encoding of each
    role and those of the attention in the first layer, and multiplies the latter by the number of layers. A style with
    ``mix_embeddings`` may have other parameters in the first layer. Parts that quirks replace are left out.
    """
    if subject.config.quirks:
        subject = Subject(subject.config.model_copy(update={"quirks": {}}), subject.seeds)
    built = sum(parameter[0].numel() for parameter in subject.model.parameters())
    difference = abs(built - _closed_form(subject))
    return within(
        difference, f"difference between the closed form and {built} parameters", bound=0.0
    )


def _closed_form(subject: Subject) -> int:
    """Return the number of parameters of a member by formula."""
    config = subject.config.model
    width, vocab_sizes = config.d_model, subject.model.vocab_sizes
    encodes, decoder_layers = "encoder" in subject.roles, config.decoder_layers
    encoder_layers = config.encoder_layers if encodes else 0

    def linear(inputs: int, outputs: int) -> int:
        return inputs * outputs + (outputs if config.bias else 0)

    total = 0
    for role in subject.roles:
        attention, positional = subject.attention(role), subject.positional(role)
        style = attention.style
        projections = (
            attention.context.geometry.parameters(width, config.bias) if style.projects else 0
        )
        if attention.self_attention and overrides(style, Attention, "project"):
            projections = sum(x[0].numel() for x in attention.output.parameters())
        layers = [part for part in subject.model.attentions if part.context.role == role]
        other = layers[-1] if overrides(style, Attention, "mix_embeddings") else layers[0]
        own, others = (
            sum(x[0].numel() for x in part.style.parameters()) for part in (layers[0], other)
        )
        total += len(layers) * projections + own + (len(layers) - 1) * others
        total += sum(parameter[0].numel() for parameter in positional.parameters())
    number = {"encoder": encoder_layers, "decoder": decoder_layers}
    for role in subject.config.entries("feed_forward"):
        entry = subject.feed_forward(role).entry
        inner = (1 + entry.gated) * linear(width, config.d_ff)
        own = sum(parameter[0].numel() for parameter in entry.parameters())
        shared = "feed-forward" in config.shared_modules
        total += (inner + linear(config.d_ff, width) + own) * (
            (role == "decoder") if shared else number[role]
        )
        norms = number[role] + (
            encoder_layers if role == "encoder" else (1 + encodes) * decoder_layers
        )
        norms = norms * (1 + (config.norm == "sandwich")) + config.final_norm
        own = sum(parameter[0].numel() for parameter in subject.norm(role).parameters())
        total += own * ((role == "decoder") if "norm" in config.shared_modules else norms)
    total += vocab_sizes.target * width
    total += (
        vocab_sizes.source * width if encodes and config.tie_embeddings in ("none", "output") else 0
    )
    return total + (
        linear(width, vocab_sizes.target) if config.tie_embeddings in ("none", "embeddings") else 0
    )


@invariant("stateless", scope="entry")
def a_pass_has_no_side_effects(subject: Subject) -> Verdict:
    """Earlier passes change no logits, inputs, weights or global state of torch."""
    rng_state, dtype = torch.get_rng_state(), torch.get_default_dtype()
    sentences = subject.sentences
    weights, inputs = _copied(subject.model.state_dict()), _copied(vars(sentences))
    used, fresh = (subject.build(subject.seeds) for _ in range(2))
    reordered = sentences.map(lambda tensor: tensor.flip(1))
    with torch.no_grad():
        before = forward(used, sentences)
        other = forward(used, reordered) - forward(fresh, reordered)
        _run_other_passes(subject, used, reordered)
        after = forward(used, sentences)
    quantity = "change of logits by earlier passes over other sentences"
    changes = [(after - before, sentences.target_nonpad), (other, reordered.target_nonpad)]
    verdicts = [within(logit_changes(*change), quantity, LOGITS, 0.0) for change in changes]
    verdicts.append(_unchanged(inputs, vars(sentences), "ids or lengths changed by a pass"))
    verdicts.append(
        _unchanged(weights, subject.model.state_dict(), "weights or buffers changed by a pass")
    )
    for role in subject.roles:
        context = subject.attention_context(role, mask=subject.mask(role))
        x, memory = subject.activations(role)
        named = {"x": x, "memory": memory, "mask": context.mask}
        named |= {"queries": context.query_positions, "keys": context.key_positions}
        tensors = {name: tensor for name, tensor in named.items() if tensor is not None}
        copies = _copied(tensors)
        with torch.no_grad():
            for record in (None, lambda name, value: None):
                subject.attention(role)(x, memory, context, None, record)
            subject.norm(role)(x.flatten(1, -2))
        verdicts.append(
            _unchanged(copies, tensors, "entries of inputs changed by attention or norm").in_role(
                role
            )
        )
    if torch.get_default_dtype() != dtype:
        torch.set_default_dtype(dtype)
        verdicts.append(violated("torch's default type was changed"))
    if not torch.equal(torch.get_rng_state(), rng_state):
        torch.set_rng_state(rng_state)
        verdicts.append(
            violated("the model uses torch's global generator; use the generators of the context")
        )
    return worst(*verdicts)


@torch.no_grad()
def _run_other_passes(subject: Subject, model: Transformer, reordered: SentenceBatch) -> None:
    """Run passes with other lengths in the same shape, step by step, and in training mode."""
    sentences = subject.sentences
    full = replace(
        sentences,
        source_lengths=torch.full_like(sentences.source_lengths, sentences.source.shape[-1]),
        target_lengths=torch.full_like(sentences.target_lengths, sentences.target.shape[-1]),
    )
    for batch in (reordered, full):
        forward(model, batch)
        explicit_forward(model, batch)
    if subject.only_length is None:
        decoded = subject.decoded_sentences.map(lambda tensor: tensor.flip(1))
        greedy(model, decoded.source, decoded.source_lengths, 3)
        ones = torch.ones_like(reordered.target_lengths)
        forward(model, replace(reordered, target=reordered.target[:, :, :1], target_lengths=ones))
    model.train()
    with torch.random.fork_rng(devices=[]):
        forward(model, reordered)
    model.eval()


def _copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _unchanged(before: dict[str, Tensor], after: dict[str, Tensor], quantity: str) -> Verdict:
    changed = {
        name: int((value != after[name]).sum()) for name, value in before.items() if value.numel()
    }
    names = ", ".join(name for name, count in changed.items() if count)
    return within(sum(changed.values()), f"{quantity}: {names}" if names else quantity, bound=0.0)


@invariant("checkpoint", scope="entry")
def a_checkpoint_holds_the_whole_model(subject: Subject) -> Verdict:
    """A stack of other seeds gives the same logits after loading the saved members."""
    members = len(subject.seeds)
    for name, value in subject.model.state_dict().items():
        if value.dim() == 0 or len(value) != members:
            return violated(
                f"'{name}' is saved with shape {list(value.shape)}, without an axis of {members} members"
            )
    other = subject.build([seed + 100 for seed in subject.seeds])
    for member in range(members):
        other.load_member(member, subject.model.member_state(member))
    with torch.no_grad():
        difference = forward(other, subject.sentences) - subject.reference_logits
    change = logit_changes(difference, subject.sentences.target_nonpad)
    return within(change, "change of logits by saving and loading", LOGITS)


@invariant("members", scope="entry")
def members_compute_the_same_alone(subject: Subject) -> Verdict:
    """The logits of each member of a stack equal those of a model with its weights alone."""
    verdicts = []
    for member, seed in enumerate(subject.seeds):
        model = subject.build([seed])
        model.load_member(0, subject.model.member_state(member))
        sentences = subject.sentences.map(
            partial(torch.index_select, dim=0, index=torch.tensor([member]))
        )
        with torch.no_grad():
            difference = forward(model, sentences) - subject.reference_logits[member : member + 1]
        quantity = f"difference between logits of member {member} in a stack and alone"
        verdicts.append(
            within(logit_changes(difference, sentences.target_nonpad), quantity, LOGITS)
        )
    return worst(*verdicts)


@invariant("determinism", scope="entry")
def a_seed_determines_the_model(subject: Subject) -> Verdict:
    """Equal seeds give equal weights and logits, alone and in a stack; other seeds give other embeddings."""

    def build(seeds: tuple[int, ...]) -> Transformer:
        # Random numbers from torch's global generator would differ between two models.
        return Transformer(subject.config, seeds, *subject.vocab_sizes).double().eval()

    first, second = (build(subject.seeds) for _ in range(2))
    last = len(subject.seeds) - 1
    alone, rebuilt = build(subject.seeds[last:]).state_dict(), second.state_dict()
    table = first.target_embedding.weight
    if last and bool((table[0] == table[1]).all()):
        return violated("two seeds have the same initial weights", 0.0)
    with torch.no_grad():
        logits, again = (forward(first, subject.sentences) for _ in range(2))
    verdicts = [
        within(
            (logits - again).abs(), "difference between two passes of the same model", LOGITS, 0.0
        )
    ]
    for name, value in first.state_dict().items():
        quantities = {
            f"{name}: difference between two models with the same seeds": (value, rebuilt[name]),
            f"{name}: difference between a member in a stack and alone": (
                value[last],
                alone[name][0],
            ),
        }
        for quantity, (left, right) in quantities.items():
            if left.shape != right.shape:
                verdicts.append(
                    violated(f"{quantity}: shapes {list(left.shape)} and {list(right.shape)}")
                )
            else:
                verdicts.append(within((left - right).abs(), quantity, bound=0.0))
    return worst(*verdicts)
