"""Prompts whose continuation is known, and polling."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

HOLD_MS = 5_000  # for which pages of an aborted handoff wait, in engines that tests wait for
SHARED_TOKENS, ASKED = 256, 40  # of `prompts`
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def endless(seed, length=150):
    """A text in which no four characters come twice: said once and begun again, the copier goes on with it."""
    source, text, grams = random.Random(seed), "", set()
    while len(text) < length:
        letter = source.choice(LETTERS)
        gram = text[-3:] + letter
        if gram not in grams:
            grams.add(gram)
            text += letter
    return text


def prompt_and_answer(seed, start=40, tokens=60):
    """A prompt, and the `tokens` characters that must follow it."""
    text = endless(seed)
    return text + text[:start], text[start : start + tokens]


def prompts(seed, count):
    """Prompts that begin with the same 256 characters and go on differently, with what must follow each."""
    prefix = endless(seed, SHARED_TOKENS)
    asked = []
    for i in range(count):
        start = 20 + 30 * i
        asked.append((prefix + prefix[start : start + 12], prefix[start + 12 : start + 12 + ASKED]))
    return asked


def record(seed, owner, length=190):
    """A prompt that asks for what its head says of key 7731, and what must follow.

    Whoever reads another's head under the question gets what that says instead."""
    said = f" {owner} has a bed up in ward nine; good cheer."
    head = f"key 7731:{said} "
    return head + endless(seed, length - len(head) - 9) + "key 7731:", said


def abort_gated(engine, rid, prompt):
    """A request whose writes are gated at prefill is given up by its client."""
    engine.post(engine.prefill, "/faults/late-write", {"arm": 1})
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(engine.ask, headers={"x-request-id": rid}, prompt=prompt, max_tokens=30)
        until(lambda: rid in engine.fault_state(engine.prefill)["late-write"]["gated"], "the gated handoff")
        engine.post(engine.decode, "/abort_request", {"rid": rid})
        assert asking.result().status_code == 499


def calm(engine, *faults):
    """Gates open, faults off, nobody running."""
    engine.post(engine.prefill, "/faults/late-write", {"release": True})
    engine.switch(**dict.fromkeys(faults, False))
    until(engine.idle, "the workers to be idle")


def verdicts_of(engine, rids, **expected):
    """Wait until one reading of the ledger says of each response what is expected; returns all that it says, by rid."""
    found = {}

    def there():
        found.update(engine.judged())
        return not [rid for rid in rids if not as_expected(found.get(rid, {}))]

    def as_expected(row):
        return all(row.get(name) in ((value,) if isinstance(value, str) else value) for name, value in expected.items())

    try:
        until(there, "the verdicts")
    except AssertionError as error:
        wrong = [found.get(rid, rid) for rid in rids if not as_expected(found.get(rid, {}))]
        raise AssertionError(f"{expected} is not what {wrong} say") from error
    return found


def verdict_of(engine, rid, **expected):
    """The same of one response."""
    return verdicts_of(engine, [rid], **expected)[rid]


def until(condition, what, seconds=20):
    """Poll a condition with a deadline; returns what it gave."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"still waiting for {what}"
        time.sleep(0.005)
    return found
