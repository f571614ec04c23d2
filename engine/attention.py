"""Paged attention on torch: gather pages by block table, then scaled dot products.

Shapes: q [tokens, heads, head_dim]; `keys` and `values` are one layer's views of the pool, [pages, page_tokens,
kv_heads, head_dim]. Invariant: only slots below a request's kv length take part.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F


def gather(keys: torch.Tensor, values: torch.Tensor, tables: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V of the block tables `tables` [batch, n]: two tensors [batch, kv_heads, n * page_tokens, head_dim]."""
    flat = tables.flatten()  # index_select copies whole pages; indexing would go slot by slot
    shape = (tables.shape[0], -1, *keys.shape[-2:])
    return keys.index_select(0, flat).view(shape).transpose(1, 2), values.index_select(0, flat).view(shape).transpose(
        1, 2
    )


def prefill_attention(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, table: torch.Tensor, start: int
) -> torch.Tensor:
    """Attention of a chunk at positions start .. start+len(q)-1 over [0, own position] of one block table."""
    k, v = gather(keys, values, table[None])
    stop = start + len(q)
    k, v = k[:, :, :stop], v[:, :, :stop]
    mask = torch.arange(stop)[None] <= torch.arange(start, stop)[:, None]
    out = F.scaled_dot_product_attention(q.transpose(0, 1)[None], k, v, attn_mask=mask[None, None], enable_gqa=True)
    return out[0].transpose(0, 1)


def decode_attention(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, tables: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """Attention of one token per request over its first `lengths` slots; `tables` [batch, n] padded with page 0."""
    k, v = gather(keys, values, tables)
    mask = (torch.arange(k.shape[2])[None] < lengths[:, None])[:, None, None]
    return F.scaled_dot_product_attention(q[:, :, None], k, v, attn_mask=mask, enable_gqa=True)[:, :, 0]
