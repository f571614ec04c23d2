"""The Llama forward pass over a paged pool, for any checkpoint with Hugging Face's tensor names.

Invariant: the pass writes K and V of its own slots before it attends, layer by layer; where they lie and how it
attends is told by the caller.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from engine.checkpoint import ModelConfig

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(q [tokens, heads, head_dim], keys, values of one layer) -> [tokens, heads, head_dim]."""


class Llama:
    """A Llama with fused q|k|v and gate|up projections."""

    def __init__(self, weights: dict[str, torch.Tensor], config: ModelConfig, context_tokens: int) -> None:
        self.config = config
        self._embed, self._head = weights["model.embed_tokens.weight"], weights["lm_head.weight"]
        self._norm = weights["model.norm.weight"]
        self._layers = [self._fuse(weights, f"model.layers.{i}.") for i in range(config.layers)]
        inverse = config.rope_base ** (-torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim)
        angles = torch.arange(context_tokens, dtype=torch.float64)[:, None] * inverse[None]
        self._cos, self._sin = angles.cos().float(), angles.sin().float()

    @staticmethod
    def _fuse(weights: dict[str, torch.Tensor], name: str) -> dict[str, torch.Tensor]:
        return {
            "qkv": torch.cat([weights[f"{name}self_attn.{part}_proj.weight"] for part in "qkv"]),
            "out": weights[name + "self_attn.o_proj.weight"],
            "gate_up": torch.cat([weights[f"{name}mlp.{part}_proj.weight"] for part in ("gate", "up")]),
            "down": weights[name + "mlp.down_proj.weight"],
            "attention_norm": weights[name + "input_layernorm.weight"],
            "mlp_norm": weights[name + "post_attention_layernorm.weight"],
        }

    @torch.inference_mode()
    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, payload: torch.Tensor, attend: Attend
    ) -> torch.Tensor:
        """Hidden states [tokens, dim] of flat `tokens`; `slots` = page * page_tokens + offset of each in `payload`."""
        config, page_tokens = self.config, payload.shape[3]
        x = self._embed[tokens]
        sizes = [config.heads * config.head_dim, config.kv_heads * config.head_dim, config.kv_heads * config.head_dim]
        pages, offsets = slots // page_tokens, slots % page_tokens
        for i, layer in enumerate(self._layers):
            q, k, v = torch.split_with_sizes(F.linear(self._rms(x, layer["attention_norm"]), layer["qkv"]), sizes, -1)
            q = self._rope(q.view(-1, config.heads, config.head_dim), positions)
            keys, values = payload[:, i, 0], payload[:, i, 1]
            keys[pages, offsets] = self._rope(k.view(-1, config.kv_heads, config.head_dim), positions)
            values[pages, offsets] = v.view(-1, config.kv_heads, config.head_dim)
            x = x + F.linear(attend(q, keys, values).reshape(-1, sizes[0]), layer["out"])
            gate, up = F.linear(self._rms(x, layer["mlp_norm"]), layer["gate_up"]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer["down"])
        return x

    @torch.inference_mode()
    def greedy(self, hidden: torch.Tensor) -> list[int]:
        """The most likely next token of each row of `hidden` [n, dim]."""
        return F.linear(self._rms(hidden, self._norm), self._head).argmax(-1).tolist()

    def _rms(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (self.config.dim,), weight, self.config.norm_eps)

    def _rope(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        cos, sin = self._cos[positions][:, None], self._sin[positions][:, None]
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)
