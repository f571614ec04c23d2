"""Checkpoints. The default, InductionLlama, is written by hand here: no training, exact behaviour.

InductionLlama is a two-layer Llama over bytes that continues its context verbatim. Layer 0 has four heads; head m
attends exactly m+1 tokens back (RoPE's fast pairs) and copies that token's code. Layer 1 looks for the slot whose
four predecessors best match the last four bytes (RoPE's slow pairs, where rotation is negligible) and copies the
byte there. A copier makes a leak visible as text; leak rates measured with it say nothing of trained models.

Invariant: a checkpoint is `model.safetensors` plus `config.json` with Hugging Face's Llama names, and the same
weights always make the same bytes.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save_file

from engine.induction import (
    CODE,
    DEPTH,
    DIM,
    FAST_PAIRS,
    HEAD_DIM,
    HEADS,
    LOOK_BACK,
    MATCH,
    ROPE_BASE,
    byte_codes,
    rope_frequencies,
)
from engine.tokenizer import PAD, VOCABULARY

if TYPE_CHECKING:
    import torch

# Residual stream: current byte 16 | four predecessors 64 | output 16 | constant 1 | filler of padding 1 + 4 | unused.
OUT, CONST = CODE * (1 + DEPTH), CODE * (2 + DEPTH)
FILLER = CONST + 1
MLP = 8  # the MLP is there and does nothing


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a Llama. RoPE rotates interleaved pairs, as GGUF Llama weights need."""

    name: str = "induction-llama"
    layers: int = 2
    dim: int = DIM
    heads: int = HEADS
    kv_heads: int = 1
    head_dim: int = HEAD_DIM
    vocabulary: int = VOCABULARY
    rope_base: float = ROPE_BASE
    norm_eps: float = 1e-12


CONFIG_NAMES = {
    "name": "_name_or_path", "layers": "num_hidden_layers", "dim": "hidden_size", "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads", "head_dim": "head_dim", "vocabulary": "vocab_size", "rope_base": "rope_theta",
    "norm_eps": "rms_norm_eps",
}  # fmt: skip
"""Fields of `ModelConfig` as Hugging Face's config.json names them."""


def induction_llama() -> dict[str, np.ndarray]:
    """The weights, by Hugging Face's Llama names, float32."""
    code = byte_codes()
    embed = _zeros(VOCABULARY, DIM)
    embed[:, :CODE] = code
    embed[:, CONST] = 1.0
    embed[PAD, FILLER] = 1.0  # as much energy as a byte's word, so that the norms treat padding like any byte
    head = _zeros(VOCABULARY, DIM)
    head[:, OUT : OUT + CODE] = code * 20
    weights = {
        "model.embed_tokens.weight": embed,
        "lm_head.weight": head,
        "model.norm.weight": np.ones(DIM, np.float32),
    }
    for layer, (query, key, value, output) in enumerate((_look_back(code), _match_suffix(code))):
        name = f"model.layers.{layer}."
        weights |= {
            name + "self_attn.q_proj.weight": query, name + "self_attn.k_proj.weight": key,
            name + "self_attn.v_proj.weight": value, name + "self_attn.o_proj.weight": output,
            name + "input_layernorm.weight": np.ones(DIM, np.float32), name + "post_attention_layernorm.weight": np.ones(DIM, np.float32),
            name + "mlp.gate_proj.weight": _zeros(MLP, DIM), name + "mlp.up_proj.weight": _zeros(MLP, DIM),
            name + "mlp.down_proj.weight": _zeros(DIM, MLP),
        }  # fmt: skip
    return weights


def _zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


Projections = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _look_back(code: np.ndarray) -> Projections:
    """Layer 0: head m finds the token m+1 back. Its norm sees energy 2 (code or filler, and constant)."""
    frequencies = rope_frequencies()
    query, key = _zeros(HEADS * HEAD_DIM, DIM), _zeros(HEAD_DIM, DIM)
    value, output = _zeros(HEAD_DIM, DIM), _zeros(DIM, HEADS * HEAD_DIM)
    for m in range(HEADS):
        for i in range(FAST_PAIRS):
            angle = (m + 1) * float(frequencies[i])
            # The query is rotated by -(m+1): the score peaks where the key stands m+1 positions earlier.
            query[m * HEAD_DIM + 2 * i, CONST] = math.cos(angle) * LOOK_BACK
            query[m * HEAD_DIM + 2 * i + 1, CONST] = -math.sin(angle) * LOOK_BACK
            key[2 * i, CONST] = 1.0
        for c in range(CODE):
            output[CODE * (m + 1) + c, m * HEAD_DIM + c] = 1.0
        output[FILLER + 1 + m, m * HEAD_DIM + CODE] = 1.0
    for c in range(CODE):
        value[c, c] = 1.0
    value[CODE, FILLER] = 1.0
    norm = math.sqrt(2 / DIM)
    return query * norm * math.sqrt(HEAD_DIM), key * norm, value * norm, output


def _match_suffix(code: np.ndarray) -> Projections:
    """Layer 1: head 0 finds the best match of the last four bytes. Its norm sees energy 2 + DEPTH."""
    query, key = _zeros(HEADS * HEAD_DIM, DIM), _zeros(HEAD_DIM, DIM)
    value, output = _zeros(HEAD_DIM, DIM), _zeros(DIM, HEADS * HEAD_DIM)
    slow = HEAD_DIM - CODE * DEPTH
    for m in range(DEPTH):
        for c in range(CODE):
            query[slow + m * CODE + c, m * CODE + c] = MATCH / 4**m
            key[slow + m * CODE + c, (m + 1) * CODE + c] = 1.0
    for c in range(CODE):
        value[c, c] = 1.0
        output[OUT + c, c] = 1.0
    norm = math.sqrt((2 + DEPTH) / DIM)
    return query * norm * math.sqrt(HEAD_DIM), key * norm, value * norm, output


def save_checkpoint(directory: Path, weights: dict[str, np.ndarray], config: ModelConfig) -> None:
    """Write `model.safetensors`, then `config.json`."""
    directory.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: np.ascontiguousarray(tensor) for name, tensor in sorted(weights.items())},
        directory / "model.safetensors",
    )
    described: dict[str, Any] = {name: getattr(config, field) for field, name in CONFIG_NAMES.items()}
    described |= {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "dtype": "float32",
        "intermediate_size": weights["model.layers.0.mlp.up_proj.weight"].shape[0], "tie_word_embeddings": False,
        "attention_bias": False, "mlp_bias": False, "rope_interleaved": True,
    }  # fmt: skip
    (directory / "config.json").write_text(json.dumps(described, indent=2, sort_keys=True) + "\n")


def load_checkpoint(directory: Path) -> tuple[dict[str, torch.Tensor], ModelConfig]:
    """Read what `save_checkpoint` wrote. Raises FileNotFoundError, ValueError saying what is wrong."""
    path = directory / "config.json"
    described = json.loads(path.read_text())
    missing = [name for name in CONFIG_NAMES.values() if name not in described]
    if missing or not described.get("rope_interleaved"):
        what = f"lacks {', '.join(missing)}" if missing else "is of weights without interleaved RoPE pairs"
        raise ValueError(f"{path} {what}; make the checkpoint with engine.checkpoint.save_checkpoint")
    config = ModelConfig(**{field: described[name] for field, name in CONFIG_NAMES.items()})
    from safetensors.torch import load_file  # noqa: PLC0415  who starts workers needs no torch

    return load_file(directory / "model.safetensors"), config


def default_checkpoint(directory: Path) -> Path:
    """The directory of InductionLlama's checkpoint under `directory`, built where it is not there yet."""
    path = directory / "induction-llama"
    if not (path / "config.json").exists():
        save_checkpoint(path, induction_llama(), ModelConfig())
    return path
