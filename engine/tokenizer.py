"""Bytes as tokens: the tokenizer of the default model."""

from __future__ import annotations

PAD, VOCABULARY = 0, 256


class ByteTokenizer:
    """Bytes are their own token ids; 0 is padding and renders as nothing."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a text. NUL cannot be said: it is the padding id."""
        return [byte for byte in text.encode() if byte != PAD]

    def decode(self, tokens: list[int]) -> str:
        """Text of token ids; bytes that are no UTF-8 become U+FFFD."""
        return bytes(token for token in tokens if token != PAD).decode("utf-8", errors="replace")
