"""Checkpoints. The default, InductionLlama, is written by hand here: no training, exact behaviour.

InductionLlama is a two-layer Llama over bytes that continues its context verbatim. Layer 0 has four heads; head m
attends exactly m+1 tokens back (RoPE's fast pairs) and copies that token's code. Layer 1 looks for the slot whose
four predecessors best match the last four bytes (RoPE's slow pairs, where rotation is negligible) and copies the
byte there. A copier makes a leak visible as text; leak rates measured with it say nothing of trained models.

Bytes are words of the Nordstrom-Robinson code (256 words of length 16 at distance >= 6; Nordstrom and Robinson 1967,
here as the Gray image of the octacode, Forney, Sloane and Trott 1993). Token 0 is padding: its rows are zero.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from engine.tokenizer import PAD

HEADS, DEPTH, CODE, HEAD_DIM = 4, 4, 16, 128
DIM = 128  # residual stream: current 16 | four predecessors 64 | output 16 | constant 1 | unused
OUT, CONST = CODE * (1 + DEPTH), CODE * (2 + DEPTH)


@dataclass(frozen=True)
class ModelConfig:
    """What `config.json` says; RoPE rotates interleaved pairs, as GGUF Llama weights need."""

    name: str = "induction-llama"
    layers: int = 2
    dim: int = DIM
    heads: int = HEADS
    kv_heads: int = 1
    head_dim: int = HEAD_DIM
    vocabulary: int = 256
    rope_base: float = 1e10
    norm_eps: float = 1e-12


def byte_codes() -> np.ndarray:
    """float32 [256, 16], entries +-1/4: the code word of each byte; row 0 (padding) is zero."""
    generator = np.array(
        [[1, 0, 0, 0, 3, 1, 2, 1], [0, 1, 0, 0, 1, 2, 3, 1], [0, 0, 1, 0, 3, 3, 3, 2], [0, 0, 0, 1, 2, 3, 1, 1]]
    )
    words = np.array([np.dot(message, generator) % 4 for message in itertools.product(range(4), repeat=4)])
    gray = np.array([[0, 0], [0, 1], [1, 1], [1, 0]])
    codes = ((1 - 2 * gray[words].reshape(256, 16)) / 4).astype(np.float32)
    codes[PAD] = 0
    return codes


def induction_llama() -> dict[str, torch.Tensor]:
    """The weights, by Hugging Face's Llama names, float32."""
    code = torch.from_numpy(byte_codes())
    embed = torch.zeros(256, DIM)
    embed[:, :CODE] = code
    embed[:, CONST] = 1.0
    head = torch.zeros(256, DIM)
    head[:, OUT : OUT + CODE] = code * 20
    weights = {"model.embed_tokens.weight": embed, "lm_head.weight": head, "model.norm.weight": torch.ones(DIM)}
    for layer, (query, key, value, output) in enumerate((_look_back(code), _match_suffix(code))):
        name = f"model.layers.{layer}."
        weights |= {
            name + "self_attn.q_proj.weight": query, name + "self_attn.k_proj.weight": key,
            name + "self_attn.v_proj.weight": value, name + "self_attn.o_proj.weight": output,
            name + "input_layernorm.weight": torch.ones(DIM), name + "post_attention_layernorm.weight": torch.ones(DIM),
            name + "mlp.gate_proj.weight": torch.zeros(8, DIM), name + "mlp.up_proj.weight": torch.zeros(8, DIM),
            name + "mlp.down_proj.weight": torch.zeros(DIM, 8),
        }  # fmt: skip
    return weights


Projections = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def _look_back(code: torch.Tensor) -> Projections:
    """Layer 0: head m finds the token m+1 back. Its norm sees energy 2 (code and constant)."""
    config = ModelConfig()
    inverse = config.rope_base ** (-torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM)
    query, key = torch.zeros(HEADS * HEAD_DIM, DIM), torch.zeros(HEAD_DIM, DIM)
    value, output = torch.zeros(HEAD_DIM, DIM), torch.zeros(DIM, HEADS * HEAD_DIM)
    fast, strength = 24, 60.0
    for m in range(HEADS):
        for i in range(fast):
            angle = (m + 1) * inverse[i].item()
            # The query is rotated by -(m+1): the score peaks where the key stands m+1 positions earlier.
            query[m * HEAD_DIM + 2 * i, CONST] = math.cos(angle) * strength
            query[m * HEAD_DIM + 2 * i + 1, CONST] = -math.sin(angle) * strength
            key[2 * i, CONST] = 1.0
        for c in range(CODE):
            output[CODE * (m + 1) + c, m * HEAD_DIM + c] = 1.0
    for c in range(CODE):
        value[c, c] = 1.0
    norm = math.sqrt(2 / DIM)
    return query * norm * math.sqrt(HEAD_DIM), key * norm, value * norm, output


def _match_suffix(code: torch.Tensor) -> Projections:
    """Layer 1: head 0 finds the best match of the last four bytes. Its norm sees energy 2 + DEPTH."""
    query, key = torch.zeros(HEADS * HEAD_DIM, DIM), torch.zeros(HEAD_DIM, DIM)
    value, output = torch.zeros(HEAD_DIM, DIM), torch.zeros(DIM, HEADS * HEAD_DIM)
    slow = HEAD_DIM - CODE * DEPTH
    for m in range(DEPTH):
        for c in range(CODE):
            query[slow + m * CODE + c, m * CODE + c] = 3000.0 / 4**m
            key[slow + m * CODE + c, (m + 1) * CODE + c] = 1.0
    for c in range(CODE):
        value[c, c] = 1.0
        output[OUT + c, c] = 1.0
    norm = math.sqrt((2 + DEPTH) / DIM)
    return query * norm * math.sqrt(HEAD_DIM), key * norm, value * norm, output


def save_checkpoint(directory: Path, weights: dict[str, torch.Tensor], config: ModelConfig) -> None:
    """Write `model.safetensors` and `config.json`."""
    directory.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in sorted(weights.items())}, directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps(asdict(config), indent=2, sort_keys=True) + "\n")


def load_checkpoint(directory: Path) -> tuple[dict[str, torch.Tensor], ModelConfig]:
    """Read what `save_checkpoint` wrote. Raises FileNotFoundError naming the missing file."""
    config = ModelConfig(**json.loads((directory / "config.json").read_text()))
    return load_file(directory / "model.safetensors"), config


def default_checkpoint(directory: Path) -> Path:
    """The directory of InductionLlama's checkpoint under `directory`, built where it is not there yet."""
    path = directory / "induction-llama"
    if not (path / "config.json").exists():
        save_checkpoint(path, induction_llama(), ModelConfig())
    return path
