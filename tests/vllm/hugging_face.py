"""InductionLlama as Hugging Face programs load it: halves instead of interleaved RoPE pairs, and a tokenizer of bytes.

Invariant: the same function of the same tokens; only rows of the query and key projections change places. A byte is
its own token id, so the text that a server returns shows, byte for byte, what its KV held.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from engine.checkpoint import ModelConfig, induction_llama, save_checkpoint
from engine.tokenizer import VOCABULARY

CONTEXT = 1024
"""Tokens of context that the checkpoint advertises."""


def save_hugging_face(directory: Path) -> Path:
    """Write `model.safetensors`, `config.json` and a tokenizer into `directory`; returns it."""
    config = ModelConfig()
    weights = {
        name: in_halves(tensor, config.head_dim) if name.endswith(("q_proj.weight", "k_proj.weight")) else tensor
        for name, tensor in induction_llama().items()
    }
    save_checkpoint(directory, weights, config)
    path = directory / "config.json"
    described = json.loads(path.read_text())
    del described["rope_interleaved"]
    described |= {
        "max_position_embeddings": CONTEXT, "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0,
        "rope_parameters": {"rope_type": "default", "rope_theta": described["rope_theta"]},
    }  # fmt: skip
    path.write_text(json.dumps(described, indent=2, sort_keys=True) + "\n")
    (directory / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
    (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return directory


def in_halves(weight: np.ndarray, head_dim: int) -> np.ndarray:
    """A projection [heads * head_dim, dim] whose rotated pairs (2i, 2i + 1) stand at (i, i + head_dim / 2)."""
    pairs = weight.reshape(-1, head_dim // 2, 2, weight.shape[1])
    return np.ascontiguousarray(pairs.transpose(0, 2, 1, 3).reshape(weight.shape))


def byte_tokenizer() -> dict[str, object]:
    """A byte-level tokenizer without merges: the token of a byte is the byte."""
    alphabet = byte_alphabet()
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "vocab": {alphabet[byte]: byte for byte in range(VOCABULARY)}, "merges": []},
    }  # fmt: skip


def byte_alphabet() -> dict[int, str]:
    """Byte -> the character that stands for it in a byte-level vocabulary: itself where it prints, else one from 256 on."""
    printing = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (byte for byte in range(256) if byte not in printing)
    return {byte: chr(byte) for byte in printing} | {byte: chr(256 + i) for i, byte in enumerate(others)}


if __name__ == "__main__":
    save_hugging_face(Path(sys.argv[1]))
