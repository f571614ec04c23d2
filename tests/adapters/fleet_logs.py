"""Logs of one prefill and one decode, as SGLang prints them, for tests of what follows from them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

START = datetime(2026, 9, 14, 12, tzinfo=UTC)
MEBIBYTE_A_PAGE = 4


@dataclass
class Fleet:
    """Pages of 64 tokens, 4 MiB each; prefill takes up to `limit` tokens, decode's pool has `pool` pages."""

    limit: int = 640
    pool: int = 10
    lines: dict[str, list[str]] = field(default_factory=lambda: {"prefill": [], "decode": []})
    room: int = 100

    def handoff(
        self, rid: str, at: float, prompt: int, *, prefill: int | None = None, pages: int | None = None,
        output: int = 5, lasts: float = 10.0, prefill_rid: str | None = None,
    ) -> None:  # fmt: skip
        """One request through both: `prefill` tokens worked on there, `pages` moved (None: as many as those need)."""
        self.room += 1
        worked = prompt if prefill is None else prefill
        moved = -(-worked // 64) if pages is None else pages
        self._stats(
            "prefill", prefill_rid or rid, at, at + 1, worked, 1, f", transfer_total={moved * MEBIBYTE_A_PAGE:.2f} MB"
        )
        self._stats("decode", rid, at, at + lasts, prompt, output)

    def timed_out(self, at: float, room: int = 1) -> None:
        """Decode releases pages by its timer."""
        said = f"Deferred KV release for room {room} timed out after 30.0s without a full drain ack from prefill; releasing anyway."
        self.say("decode", at, said)

    def write(self, folder: Path) -> Path:
        for role, lines in self.lines.items():
            (folder / role).mkdir(parents=True)
            (folder / role / "server.log").write_text("".join(f"{line}\n" for line in lines))
            pool, least = (self.limit, self.limit + 1) if role == "prefill" else (self.pool * 64, 1 << 20)
            info = {
                "disaggregation_mode": role, "page_size": 64, "max_total_num_tokens": pool, "max_req_input_len": least,
            }  # fmt: skip
            (folder / role / "server_info.json").write_text(json.dumps(info))
        return folder

    def _stats(self, role: str, rid: str, at: float, end: float, tokens: int, output: int, tail: str = "") -> None:
        entered = (START + timedelta(seconds=at)).timestamp()
        self.say(
            role, end,
            f"ReqTimeStats(rid={rid}, bootstrap_room={self.room}, input_len={tokens}, cached_input_len=0, "
            f"output_len={output}, attempts=0, type={role}): queue_duration=0.00ms, entry_time={entered:.3f}{tail}",
        )  # fmt: skip

    def say(self, role: str, at: float, message: str) -> None:
        """One line of a role's log."""
        self.lines[role].append(f"[{START + timedelta(seconds=at):%Y-%m-%d %H:%M:%S} TP0] {message}")
