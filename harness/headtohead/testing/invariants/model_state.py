"""A seed determines the model, a checkpoint holds it, its members are independent, and a pass changes nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from headtohead.model.attention import overrides
from headtohead.model.decoding import greedy
from headtohead.model.transformer import Transformer
from headtohead.plugins.attention import Attention
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import SentenceBatch, Subject, explicit_forward, forward
from headtohead.testing.verdict import LOGITS, Verdict, logit_changes, violated, within, worst

SHORT = 2
"""Number of tokens of the sentences of a shorter pass."""


@invariant("parameter-count")
def parameter_count_equals_the_closed_form(subject: Subject) -> Verdict:
    """The number of parameters of a member equals a closed form; of entries: every layer creates as many as the first.

    The closed form has no formula for the parameters that an entry creates. It counts those of the encoding of each
    role and those of the attention in the first layer, and multiplies the latter by the number of layers. A style with
    ``mix_embeddings`` may have other parameters in the first layer. Parts that quirks replace are left out.
    """
    if subject.config.quirks:
        subject = Subject(subject.config.model_copy(update={"quirks": {}}), subject.seeds)
    built = _count(subject.model)
    difference = abs(built - _closed_form(subject))
    quantity = f"difference between the closed form and {built} parameters"
    return within(difference, quantity, bound=0.0)


def _count(module: nn.Module) -> int:
    """Return the number of parameters of a member."""
    return sum(parameter[0].numel() for parameter in module.parameters())


def _linear(subject: Subject, inputs: int, outputs: int) -> int:
    """Return the number of parameters of a linear map, with the bias that the configuration selects."""
    biases = outputs if subject.config.model.bias else 0
    return inputs * outputs + biases


def _closed_form(subject: Subject) -> int:
    """Return the number of parameters of a member by formula."""
    total = _embedding_parameters(subject)
    for role in subject.roles:
        total += _attention_parameters(subject, role)
        total += _count(subject.positional(role))
    for role in subject.config.entries("feed_forward"):
        total += _tokenwise_parameters(subject, role)
    return total


def _embedding_parameters(subject: Subject) -> int:
    """Return the parameters of the embeddings and of the map to logits, as far as they are not tied."""
    config = subject.config.model
    vocab_sizes = subject.model.vocab_sizes
    total = vocab_sizes.target * config.d_model
    if "encoder" in subject.roles and config.tie_embeddings in ("none", "output"):
        total += vocab_sizes.source * config.d_model
    if config.tie_embeddings in ("none", "embeddings"):
        total += _linear(subject, config.d_model, vocab_sizes.target)
    return int(total)


def _attention_parameters(subject: Subject, role: str) -> int:
    """Return the parameters of all attentions of a role: their projections, and those of the style."""
    config = subject.config.model
    attention = subject.attention(role)
    style = attention.style
    layers = [part for part in subject.model.attentions if part.context.role == role]
    projections = 0
    if attention.is_self_attention and overrides(style, Attention, "project"):
        projections = _count(attention.output)
    elif style.projects:
        projections = attention.context.geometry.parameters(config.d_model, config.bias)
    first = _count(style)
    later = first
    if overrides(style, Attention, "mix_embeddings"):
        later = _count(layers[-1].style)
    return len(layers) * projections + first + (len(layers) - 1) * later


def _tokenwise_parameters(subject: Subject, role: str) -> int:
    """Return the parameters of all feed-forward networks and norms of the encoder or decoder."""
    config = subject.config.model
    networks = config.decoder_layers
    norms = config.decoder_layers  # those of attentions
    if role == "encoder":
        networks = config.encoder_layers
        norms = config.encoder_layers
    elif "encoder" in subject.roles:  # a norm of the cross-attention
        norms *= 2
    norms += networks
    if config.norm == "sandwich":
        norms *= 2
    if config.final_norm:
        norms += 1
    # A shared module is counted once, in the decoder.
    if "feed-forward" in config.shared_modules:
        networks = 1 if role == "decoder" else 0
    if "norm" in config.shared_modules:
        norms = 1 if role == "decoder" else 0
    entry = subject.feed_forward(role).entry
    inner = _linear(subject, config.d_model, config.d_ff)
    if entry.gated:
        inner *= 2
    outer = _linear(subject, config.d_ff, config.d_model)
    network = inner + outer + _count(entry)
    return networks * network + norms * _count(subject.norm(role))


@invariant("stateless", scope="entry")
def a_pass_has_no_side_effects(subject: Subject) -> Verdict:
    """Earlier passes change no logits, inputs, weights or global state of torch."""
    rng_state = torch.get_rng_state()
    dtype = torch.get_default_dtype()
    weights = _copied(subject.model.state_dict())
    inputs = _copied(vars(subject.sentences))
    verdicts = _logits_after_other_passes(subject)
    after = vars(subject.sentences)
    verdicts.append(_unchanged(inputs, after, "ids or lengths changed by a pass"))
    after = subject.model.state_dict()
    verdicts.append(_unchanged(weights, after, "weights or buffers changed by a pass"))
    for role in subject.roles:
        verdicts.append(_inputs_unchanged(subject, role).in_role(role))
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
def _logits_after_other_passes(subject: Subject) -> list[Verdict]:
    """Return verdicts on the logits of a model before and after other passes, and of models with other first passes."""
    sentences = subject.sentences
    reordered = sentences.map(lambda tensor: tensor.flip(1))
    used = subject.build(subject.seeds)
    fresh = subject.build(subject.seeds)
    before = forward(used, sentences)
    difference = forward(used, reordered) - forward(fresh, reordered)
    _run_other_passes(subject, used, reordered)
    after = forward(used, sentences)
    quantity = "change of logits by earlier passes over other sentences"
    change = logit_changes(after - before, sentences.target_nonpad)
    change_of_reordered = logit_changes(difference, reordered.target_nonpad)
    verdicts = [
        within(change, quantity, LOGITS, 0.0),
        within(change_of_reordered, quantity, LOGITS, 0.0),
    ]
    if subject.only_length is None:
        verdicts.append(_logits_after_a_short_pass(subject, before))
    return verdicts


def _logits_after_a_short_pass(subject: Subject, logits: Tensor) -> Verdict:
    """Return a verdict on a model whose first pass has shorter sentences.

    Args:
        subject: The variant.
        logits: Those of the model whose first pass has the sentences themselves.
    """
    sentences = subject.sentences
    short = replace(
        sentences,
        source=sentences.source[:, :, :SHORT],
        source_lengths=sentences.source_lengths.clamp(max=SHORT),
        target=sentences.target[:, :, :SHORT],
        target_lengths=sentences.target_lengths.clamp(max=SHORT),
    )
    model = subject.build(subject.seeds)
    forward(model, short)
    change = logit_changes(forward(model, sentences) - logits, sentences.target_nonpad)
    return within(change, "change of logits by a shorter first pass", LOGITS, 0.0)


@torch.no_grad()
def _inputs_unchanged(subject: Subject, role: str) -> Verdict:
    """Return a verdict on the inputs of the attention and the norm of a role, before and after both."""
    context = subject.attention_context(role, mask=subject.mask(role))
    x, memory = subject.activations(role)
    tensors = {"x": x, "queries": context.query_positions, "keys": context.key_positions}
    if memory is not None:
        tensors["memory"] = memory
    if context.mask is not None:
        tensors["mask"] = context.mask
    copies = _copied(tensors)
    for record in (None, lambda name, value: None):
        subject.attention(role)(x, memory, context, None, record)
    subject.norm(role)(x.flatten(1, -2))
    return _unchanged(copies, tensors, "entries of inputs changed by attention or norm")


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
        first_tokens = reordered.target[:, :, :1]
        ones = torch.ones_like(reordered.target_lengths)
        forward(model, replace(reordered, target=first_tokens, target_lengths=ones))
    model.train()
    with torch.random.fork_rng(devices=[]):
        forward(model, reordered)
    model.eval()


def _copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _unchanged(before: dict[str, Tensor], after: dict[str, Tensor], quantity: str) -> Verdict:
    names = []
    total = 0
    for name, value in before.items():
        count = int((value != after[name]).sum())
        if count:
            names.append(name)
            total += count
    if names:
        quantity = f"{quantity}: {', '.join(names)}"
    return within(total, quantity, bound=0.0)


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
        index = torch.tensor([member])
        sentences = subject.sentences.map(partial(torch.index_select, dim=0, index=index))
        in_stack = subject.reference_logits[member : member + 1]
        with torch.no_grad():
            difference = forward(model, sentences) - in_stack
        change = logit_changes(difference, sentences.target_nonpad)
        quantity = f"difference between logits of member {member} in a stack and alone"
        verdicts.append(within(change, quantity, LOGITS))
    return worst(*verdicts)


@invariant("determinism", scope="entry")
def a_seed_determines_the_model(subject: Subject) -> Verdict:
    """Equal seeds give equal weights and logits, alone and in a stack; other seeds give other embeddings."""

    def build(seeds: tuple[int, ...]) -> Transformer:
        # Random numbers from torch's global generator would differ between two models.
        return Transformer(subject.config, seeds, *subject.vocab_sizes).double().eval()

    model = build(subject.seeds)
    rebuilt = build(subject.seeds).state_dict()
    last = len(subject.seeds) - 1
    alone = build(subject.seeds[last:]).state_dict()
    table = model.target_embedding.weight
    if last > 0 and bool((table[0] == table[1]).all()):
        return violated("two seeds have the same initial weights", 0.0)
    with torch.no_grad():
        difference = forward(model, subject.sentences) - forward(model, subject.sentences)
    quantity = "difference between two passes of the same model"
    verdicts = [within(difference.abs(), quantity, LOGITS, 0.0)]
    for name, value in model.state_dict().items():
        quantity = f"{name}: difference between two models with the same seeds"
        verdicts.append(_equal(value, rebuilt[name], quantity))
        quantity = f"{name}: difference between a member in a stack and alone"
        verdicts.append(_equal(value[last], alone[name][0], quantity))
    return worst(*verdicts)


def _equal(left: Tensor, right: Tensor, quantity: str) -> Verdict:
    if left.shape != right.shape:
        return violated(f"{quantity}: shapes {list(left.shape)} and {list(right.shape)}")
    return within((left - right).abs(), quantity, bound=0.0)
