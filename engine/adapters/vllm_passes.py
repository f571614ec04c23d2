"""Forward passes of vLLM as `steps` rows, with what each wrote and bound.

Invariant: a pass's decoding requests stand in a row before those that compute a prompt, so that a prompt's last chunk
is bound after every row whose pass it did not decode in; a request that decodes and is left out of a pass is paused.
Passes that repeat the one before are counted, and told before anything else is.
"""

from __future__ import annotations

from engine.adapters.block_tables import BlockTables, Life
from engine.ledger.recorder import Recorder
from engine.ledger.step_runs import StepRuns
from engine.ledger.tag import seq_of

Work = list[tuple[Life, int, bool]]
"""(request, tokens of it in the pass, whether the pass gave it a token)."""


class Passes:
    """Passes of one worker, in the order in which they ran."""

    def __init__(self, recorder: Recorder, tables: BlockTables) -> None:
        self._recorder, self._tables = recorder, tables
        self._runs = StepRuns(recorder)
        self._decoding: dict[int, Life] = {}
        self._skipped = 0
        self._after = 0  # the last seq when the pass before had been recorded
        self._ended_us = 0
        self._same: list[Life] = []  # who decoded in the pass before, where it may be repeated
        self._left = 0  # repeats before a block of theirs is full
        self._until_us = 0  # when the row of the repeats is full
        self._repeats = 0  # those that are not told yet
        self._first_us = self._last_us = 0  # when the first and the last of them began

    @property
    def steps(self) -> int:
        """Rows' passes so far; one that both decoded and computed prompts counts as two."""
        return self._runs.steps + self._repeats

    def close_run(self) -> None:
        """Some other row is about to be written."""
        self._tell_repeats()
        self._runs.close()

    def repeat(self, start_us: int, end_us: int) -> bool:
        """A pass over the requests of the pass before, one token each, has run; False where it is to be noted as any other."""
        if self._left <= self._repeats or self._recorder.seq != self._after or start_us >= self._until_us:
            return False
        start = max(start_us, self._ended_us)
        if not self._repeats:
            self._first_us = start
        self._repeats += 1
        self._last_us, self._ended_us = start, end_us
        return True

    def _tell_repeats(self) -> None:
        """What has been counted takes place, as if each pass had been noted."""
        count, self._repeats, self._left = self._repeats, 0, 0
        if not count:
            return
        for life in self._same:
            life.computed += count
            life.last_us = self._ended_us
        batch = tuple(life.req for life in self._same)
        self._runs.note(
            "decode", batch, self._after, self._first_us, self._ended_us, passes=count, last_us=self._last_us
        )

    def forget(self, life: Life) -> None:
        """A request runs no more."""
        if self._decoding.pop(life.req, None) is not None and life.skipped:
            life.skipped = False
            self._skipped -= 1

    def note(self, decoding: list[Life], others: Work, since_seq: int, start_us: int, end_us: int) -> None:
        """A pass has run that was handed over at `start_us`, when `since_seq` was the last seq; it ended at `end_us`.

        `others`: all but those that decode and have had a token before.
        """
        self._tell_repeats()
        since, start = max(since_seq, self._after), max(start_us, self._ended_us)
        if self._skipped or len(decoding) != len(self._decoding):
            since = max(since, self._skip(decoding))
        if decoding:
            self._decode(decoding, since, start, end_us)
        if others:
            self._runs.close()
            if chunks := [(life, count) for life, count, _ in others if not life.decoding]:
                self._compute(chunks, since, start, end_us)
            for life in (life for life, _, has_token in others if has_token):
                life.last_us = end_us
                if not life.has_token:
                    life.has_token = True
                    self._recorder.record("requests", "first_token", req=life.req)
        elif decoding and not self._skipped:
            size = self._tables.page_tokens
            self._same, self._left = decoding, min(size - 1 - life.computed % size for life in decoding)
            self._until_us = self._runs.until_us(start)
        self._after, self._ended_us = self._recorder.seq, end_us

    def _decode(self, lives: list[Life], since: int, start: int, end: int) -> None:
        self._runs.note("decode", tuple(life.req for life in lives), since, start, end)
        size = self._tables.page_tokens
        for life in lives:
            life.last_us = end
            life.computed += 1
            if life.computed % size == 0:
                index = life.computed // size - 1
                self._runs.close()
                self._tables.write(life, index * size, life.computed, seq_of(life.tags[index]))

    def _compute(self, chunks: list[tuple[Life, int]], since: int, start: int, end: int) -> None:
        """Everything that a pass writes, then what it attends to: one may read what another of the same pass wrote."""
        for life, count in chunks:
            self._tables.write(life, life.computed, life.computed + count, since)
        for life, count in chunks:
            if not life.is_bound and life.computed:
                self._tables.bind(life, 0, life.computed)
            life.is_bound = True
            self._tables.bind(life, life.computed, life.computed + count)
            life.computed += count
            if life.computed >= life.until:
                life.decoding = True
                self._decoding[life.req] = life
                if life.paused:
                    life.paused = False
                    self._recorder.record("requests", "resume", req=life.req)
                    since = self._recorder.seq
        self._runs.note("prefill", tuple(life.req for life, _ in chunks), since, start, end, sum(n for _, n in chunks))
        self._runs.close()

    def _skip(self, decoding: list[Life]) -> int:
        """Those that decode and are left out of a pass are paused until they are in one again."""
        self._runs.close()
        present = {life.req for life in decoding}
        for req, life in self._decoding.items():
            if (req not in present) != life.skipped:
                life.skipped = not life.skipped
                self._skipped += 1 if life.skipped else -1
                self._recorder.record("requests", "pause" if life.skipped else "resume", req=req)
        return self._recorder.seq
