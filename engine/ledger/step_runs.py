"""Forward passes as run-length rows: one `steps` row per run of passes with an unchanged batch.

Invariant: a run is closed before its worker records any other row, so its row covers (since_seq, seq] with nothing
in between; nothing about a pass is interpolated.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.ledger.recorder import Recorder

MAX_RUN_US = 1_000_000


@dataclass
class _Run:
    op: str
    since_seq: int
    step: int
    t: int
    t_end: int
    end: int
    batch: tuple[int, ...]
    tokens: int
    n: int


class StepRuns:
    """Counts passes of one worker epoch from 1 and writes their runs."""

    def __init__(self, recorder: Recorder, max_run_us: int = MAX_RUN_US) -> None:
        self._recorder, self._max_run_us = recorder, max_run_us
        self._run: _Run | None = None
        self.steps = 0

    def next_step(self) -> int:
        """The number of the pass that is about to begin."""
        return self.steps + 1

    def until_us(self, start_us: int) -> int:
        """When the row of passes that begin at `start_us` is full."""
        run = self._run
        begun = run.t if run is not None and start_us - run.t < self._max_run_us else start_us
        return begun + self._max_run_us

    def note(
        self,
        op: str,
        batch: tuple[int, ...],
        since_seq: int,
        start_us: int,
        end_us: int,
        tokens: int | None = None,
        passes: int = 1,
        last_us: int | None = None,
    ) -> None:
        """`passes` passes over `batch` (req ordinals) and `tokens` tokens in all (None: one each a pass) have ended.

        `since_seq` was the last seq taken when they began; the first began at `start_us`, the last at `last_us`
        (None: it was the first), and it ended at `end_us`.
        """
        count = len(batch) * passes if tokens is None else tokens
        last_us = start_us if last_us is None else last_us
        self.steps += passes
        run = self._run
        goes_on = run is not None and run.op == op and run.batch == batch and run.since_seq == since_seq
        if run is not None and goes_on and start_us - run.t < self._max_run_us:
            run.n, run.t_end, run.end, run.tokens = run.n + passes, last_us, end_us, run.tokens + count
            return
        self.close()
        self._run = _Run(
            op,
            self._recorder.seq if run is not None else since_seq,
            self.steps - passes + 1,
            start_us,
            last_us,
            end_us,
            batch,
            count,
            passes,
        )

    def close(self) -> None:
        """Write the open run, if there is one."""
        if self._run is not None:
            run, self._run = self._run, None
            self._recorder.record(
                "steps", run.op, t=run.t, since_seq=run.since_seq, step=run.step, n=run.n, t_end=run.t_end,
                batch=len(run.batch), tokens=run.tokens, micros=run.end - run.t,
            )  # fmt: skip
