"""The side transformers: its Trainer with a Marian model."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
from ours import Pairs
from sizes import DROPOUT, EOS, MAX_POSITIONS, PAD, SOS, Size
from torch import Tensor, nn
from weights import Names, Weights, copy_weights, sinusoids

LAYERS = {
    **{f"attention.{letter}": f"self_attn.{letter}_proj" for letter in "qkv"},
    **{f"cross.{letter}": f"encoder_attn.{letter}_proj" for letter in "qkv"},
    "attention.o": "self_attn.out_proj",
    "attention_norm": "self_attn_layer_norm",
    "cross.o": "encoder_attn.out_proj",
    "cross_norm": "encoder_attn_layer_norm",
    "inner": "fc1",
    "outer": "fc2",
    "feed_forward_norm": "final_layer_norm",
}
NAMES = Names(
    "model.encoder.embed_tokens",
    "model.decoder.embed_tokens",
    "lm_head",
    "model.encoder.layers.{}",
    "model.decoder.layers.{}",
    LAYERS,
)


def marian(size: Size, words: tuple[int, int], weights: Weights, dropout: float = DROPOUT) -> Any:
    """Return a Marian model with a trained bias of the logits and headtohead's order of sinusoids."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=words[0],
        decoder_vocab_size=words[1],
        d_model=size.d_model,
        encoder_layers=size.layers,
        decoder_layers=size.layers,
        encoder_attention_heads=size.heads,
        decoder_attention_heads=size.heads,
        encoder_ffn_dim=size.d_ff,
        decoder_ffn_dim=size.d_ff,
        activation_function="relu",
        dropout=dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        max_position_embeddings=MAX_POSITIONS,
        pad_token_id=PAD,
        eos_token_id=EOS,
        forced_eos_token_id=EOS,
        decoder_start_token_id=SOS,
        share_encoder_decoder_embeddings=False,
        tie_word_embeddings=False,
        scale_embedding=True,
    )
    model = MarianMTModel(config)
    model.lm_head = nn.Linear(size.d_model, words[1])
    copy_weights(model, weights, NAMES.peer_name)
    for side in (model.model.encoder, model.model.decoder):
        side.embed_positions.weight.data = sinusoids(MAX_POSITIONS, size.d_model)
    return model


def of_pairs(pairs: Pairs, size: int) -> dict[str, Any]:
    """Return the arguments of `StepByStep` for random pairs grouped by length."""
    data = [{"input_ids": s, "labels": t[1:], "length": max(len(s), len(t))} for s, t in pairs]

    def collate(chosen: list[dict[str, Any]]) -> dict[str, Tensor]:
        source, labels = (
            nn.utils.rnn.pad_sequence([torch.tensor(row[name]) for row in chosen], batch_first=True, padding_value=pad)
            for name, pad in (("input_ids", PAD), ("labels", -100))
        )
        return {"input_ids": source, "attention_mask": source != PAD, "labels": labels}

    arguments = {
        "per_device_train_batch_size": size,
        "train_sampling_strategy": "group_by_length",
        "length_column_name": "length",
    }
    return {"data": data, "collate": collate, "arguments": arguments}


def of_batches(batches: Iterable[tuple[Tensor, Tensor, int]]) -> dict[str, Any]:
    """Return the arguments of `StepByStep` for given batches in their order."""
    data = [
        {
            "input_ids": source,
            "attention_mask": source != PAD,
            "labels": target[:, 1:].masked_fill(target[:, 1:] == PAD, -100),
        }
        for source, target, _ in batches
    ]
    arguments = {"per_device_train_batch_size": 1, "train_sampling_strategy": "sequential"}
    return {"data": data, "collate": lambda chosen: chosen[0], "arguments": arguments}


class StepByStep:
    """Runs a Trainer in a thread, one step per call."""

    def __init__(
        self,
        model: Any,
        lr: float,
        device: torch.device,
        precision: str,
        *,
        data: list[Any],
        collate: Callable[..., Any],
        arguments: dict[str, Any],
    ) -> None:
        import accelerate  # noqa: F401  (the Trainer needs it)
        from transformers import Trainer, TrainerCallback, TrainingArguments

        self.go, self.done = threading.Semaphore(0), threading.Semaphore(0)
        self.loss, self.words = torch.zeros(()), 0
        outer = self

        class Watched(Trainer):
            def training_step(self, model: Any, inputs: Any, *rest: Any) -> Tensor:
                outer.go.acquire()
                outer.words = int((inputs["labels"] != -100).sum())
                outer.loss = super().training_step(model, inputs, *rest).detach()
                return outer.loss

        class Ended(TrainerCallback):
            def on_step_end(self, *args: Any, **kwargs: Any) -> None:
                outer.done.release()

        settings = TrainingArguments(
            output_dir=tempfile.mkdtemp(),
            max_steps=10**6,
            learning_rate=lr,
            lr_scheduler_type="constant",
            optim="adamw_torch_fused",
            weight_decay=0.0,
            max_grad_norm=0.0,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_strategy="no",
            remove_unused_columns=False,
            dataloader_num_workers=0,
            seed=1,
            use_cpu=device.type == "cpu",
            bf16=precision == "bfloat16",
            **arguments,
        )
        whole = Watched(model=model, args=settings, train_dataset=data, data_collator=collate, callbacks=[Ended()])
        threading.Thread(target=whole.train, daemon=True).start()

    def __call__(self) -> tuple[Tensor, int]:
        self.go.release()
        self.done.acquire()
        return self.loss, self.words
