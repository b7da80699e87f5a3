"""Names in Hugging Face, nanoGPT, PyTorch, fairseq, JoeyNMT and papers, and the names here: for suggestions in errors.

A key with spaces is a sentence, for names that no single name here replaces. Similar names are suggested without a row.
"""

_NAMES_ELSEWHERE = {
    # Fields of an experiment file
    "seeds": "num_seeds random_seed seed",
    "feed_forward": "activation activation_fn activation_function hidden_act mlp",
    "data.block": "block_size",
    "data.truncate_tokens": "max_length max_position_embeddings max_seq_length max_source_positions n_positions",
    "data.vocabulary.max_size": "voc_limit vocab_size",
    "model.architecture": "arch decoder_only is_decoder is_encoder_decoder model_type",
    "model.d_model": "embed_dim embedding_dim encoder_embed_dim hidden_dim hidden_size n_embd",
    "model.heads": "encoder_attention_heads n_head n_heads nhead num_attention_heads num_heads",
    "model.layers": "n_layer n_layers num_hidden_layers num_layers",
    "model.d_ff": "dim_feedforward encoder_ffn_dim encoder_ffn_embed_dim ff_size intermediate_size n_inner",
    "model.norm": "encoder_normalize_before norm_first pre_norm",
    "model.tie_embeddings": "share_decoder_input_output_embed tie_word_embeddings tied_embeddings weight_tying",
    "model.dropout": "dropout_rate",
    "model.dropout_attention": "attention_dropout attention_probs_dropout_prob attn_dropout attn_pdrop",
    "model.dropout_embedding": "embd_pdrop embedding_dropout",
    "model.dropout_ffn": "activation_dropout ffn_dropout relu_dropout",
    "model.dropout_residual": "hidden_dropout hidden_dropout_prob resid_pdrop residual_dropout",
    "train.epochs": "max_epoch max_epochs num_epochs num_train_epochs",
    "train.steps": "max_iters max_steps max_update num_train_steps updates",
    "train.batch_tokens": "max_tokens",
    "train.batch_size": "per_device_train_batch_size train_batch_size",
    "train.lr": "learning_rate",
    "train.warmup_steps": "num_warmup_steps warmup warmup_iters warmup_ratio warmup_updates",
    "train.betas": "adam_beta1 adam_beta2 adam_betas beta1 beta2",
    "train.eps": "adam_eps adam_epsilon",
    "train.clip_norm": "clip_grad_norm grad_clip gradient_clip_val max_grad_norm",
    "train.evaluate_every": "eval_interval eval_steps val_check_interval validate_interval_updates validation_freq",
    "train.checkpoint_seconds": "save_every save_interval save_steps",
    "train.precision": "bf16 dtype torch_dtype",
    "train.backend": "compile torch_compile",
    "evaluate.batch_size": "per_device_eval_batch_size",
    "evaluate.max_length": "max_new_tokens max_output_length",
    # Values, and options of components
    "theta": "base rope_base rope_theta",
    "decoder-only": "causal_lm gpt gpt2 llama",
    # Components
    "swiglu": "silu swish",
    "rotary": "roformer rope",
    "split-heads": "mha multi_head_attention sdpa",
    "grouped-query": "gqa",
    "multi-query": "mqa",
    "multi-head-latent": "mla",
    "window": "sliding_window swa",
    # Commands and options
    "run": "fit train",
    "plan": "dry_run",
    "--workers": "n_jobs num_workers",
    "--seeds": "num_seeds seed",
    "--reports": "out_dir output_dir",
    "--device": "cuda gpu gpus",
    # Sentences
    "type schedule: {name: cosine, final_lr: 1.0e-4}": "eta_min final_lr learning_rate_min min_lr",
    "type schedule: {name: wsd, decay_fraction: 0.2}": "decay_fraction",
    "seeds: 6 trains six seeds, and seeds: [42] trains seed 42": "num_seeds random_seed seed",
    "type norm: NAME; h2h plugins norm lists them; model.norm is their position: pre, post or sandwich": "layer_norm "
    "layernorm rms_norm rmsnorm",
    "type attention: {name: grouped-query, kv_heads: N}": "n_kv_heads num_key_value_heads num_kv_heads",
    "heads have the width model.d_model / model.heads; h2h plugins lists attention styles with others": "head_dim",
    "mixtures of experts do not exist here": "moe num_experts num_local_experts",
    "a list is a pattern of layers: masking.decoder: [window, causal]": "layer_types",
    "train.num_microbatches: N computes a batch in N parts; the batch size stays": "accumulate_grad_batches "
    "gradient_accumulation_steps update_freq",
    "the device is an option of h2h run: --device cuda or --device cpu": "accelerator device no_cuda",
    "the same command resumes": "resume resume_from_checkpoint",
    "type h2h --help": "help",
    "type h2h --version": "version",
}


def synonyms(name: str) -> list[str]:
    """Return the names here for a name elsewhere; case and hyphens do not matter."""
    return [here for here in _replacements(name) if " " not in here]


def hint(name: str) -> str:
    """Return the sentence for a name elsewhere that no single name here replaces, or an empty text."""
    return next((here for here in _replacements(name) if " " in here), "")


def _replacements(name: str) -> list[str]:
    typed = name.lower().replace("-", "_").strip("_")
    return [here for here, elsewhere in _NAMES_ELSEWHERE.items() if typed in elsewhere.split()]
