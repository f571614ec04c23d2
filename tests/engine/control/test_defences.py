"""Each defence off, log and enforce."""

import pytest
from control_bench import PAGE

from engine.defences import DETECTORS, Defences, Limits
from engine.executor import TagMismatch

OFF = dict.fromkeys(DETECTORS, "off")
MISMATCH = (TagMismatch(page=3, index=2, expected=77, found=78), TagMismatch(4, 3, 77, 0))


@pytest.mark.parametrize("mode", ["off", "log", "enforce"])
def test_admission_gate(bench, mode):
    engine = bench(prefill_pages=5, defences={**OFF, "admission-gate": mode}, faults=["short-handoff"])
    engine.ask("r1", prompt=7 * PAGE, output=2)
    engine.run()
    checks = engine.rows("checks", op="mismatch")
    if mode == "enforce":
        (end,) = engine.ends("r1")
        assert (end.error.status, end.error.code) == (400, "prompt_exceeds_pool")
        assert engine.tokens("r1") == []
        assert not engine.rows("pages", "prefill")  # refused before any page was taken there
        assert not engine.rows("transfers", op="post")
    else:
        assert engine.code("r1") == ""
    if mode == "off":
        assert checks == []
    else:
        action = "refuse" if mode == "enforce" else "log"
        assert [(row["detector"], row["expected"], row["found"], row["action"]) for row in checks] == [
            ("D1", 4 * PAGE, 7 * PAGE, action)
        ]


@pytest.mark.parametrize("mode", ["off", "log", "enforce"])
def test_no_mode_of_the_gate_lets_a_prompt_past_what_decode_can_hold(bench, mode):
    engine = bench(decode_pages=5, prefill_pages=33, defences={**OFF, "admission-gate": mode})
    engine.ask("r1", prompt=5 * PAGE, output=1)
    engine.ask("r2", prompt=4 * PAGE, output=1, max_tokens=300)
    engine.run()
    assert engine.code("r1") == "prompt_exceeds_pool"
    assert engine.code("r2") == "prompt_exceeds_context"
    assert not engine.rows("pages", "decode")
    assert engine.prefill.queue.grants == {}


@pytest.mark.parametrize("mode", ["off", "log", "enforce"])
def test_covered_count(bench, mode):
    engine = bench(prefill_pages=5, defences={**OFF, "covered-count": mode}, faults=["short-handoff"])
    engine.ask("r1", prompt=7 * PAGE, output=2)
    engine.run()
    checks = engine.rows("checks", op="mismatch")
    believed = {"off": 7 * PAGE, "log": 1, "enforce": 1}[mode]
    (receipt,) = engine.rows("pages", op="receipt")
    assert receipt["tokens"] == believed
    if mode == "enforce":
        (end,) = engine.ends("r1")
        assert (end.error.status, end.error.code) == (502, "covered_less_than_reserved")
        assert f"1 of {7 * PAGE} prompt tokens" in end.error.message
        assert not engine.rows("requests", op="commit")
        assert not engine.rows("pages", "decode", op="bind")  # nothing was read
        assert engine.tokens("r1") == []
        assert engine.decode.pool.counts()["used"] == 0
    else:
        assert engine.code("r1") == ""
        (commit,) = engine.rows("requests", op="commit")
        assert commit["covered_tokens"] == believed
    assert [(row["detector"], row["expected"], row["found"]) for row in checks] == (
        [] if mode == "off" else [("D2", 7 * PAGE, 1)]
    )


@pytest.mark.parametrize("mode", ["off", "log", "enforce"])
def test_page_tag_at_decode(bench, mode):
    engine = bench(defences={**OFF, "page-tag": mode})
    engine.ask("r1", prompt=10, output=8)
    engine.ask("r2", prompt=10, output=8)
    engine.until(lambda: len(engine.tokens("r1")) == 3)
    step = engine.decode.runs.next_step()
    engine.executors["decode"].mismatch[1] = MISMATCH
    engine.run()
    assert engine.tokens("r2") == list(range(11, 19))  # nobody else is touched
    checks = engine.rows("checks", "decode", op="mismatch")
    if mode == "off":
        assert engine.tokens("r1") == list(range(11, 19))
        assert checks == []
        assert engine.rows("checks", op="passed") == []
        return
    found = [tuple(row[name] for name in ("detector", "req", "page", "expected", "found", "step")) for row in checks]
    assert found == [("D4", 1, 3, 77, 78, step), ("D4", 1, 4, 77, 0, step)]
    if mode == "log":
        assert engine.tokens("r1") == list(range(11, 19))
        return
    (end,) = engine.ends("r1")
    assert (end.error.status, end.error.code) == (500, "page_tag_mismatch")
    assert engine.tokens("r1") == [11, 12, 13]  # the token of the failed pass did not leave
    (abort,) = engine.rows("requests", "decode", op="abort")
    assert abort["output_tokens"] == 3
    runs = engine.rows("steps", "decode")
    (failed,) = [row for row in runs if row["step"] == step]
    assert failed["n"] == 1  # a check that fires ends the run before, and its own
    assert abort["last_token"] < failed["t"]


@pytest.mark.parametrize("mode", ["off", "log", "enforce"])
def test_page_tag_at_prefill(bench, mode):
    engine = bench(defences={**OFF, "page-tag": mode})
    engine.executors["prefill"].mismatch[1] = MISMATCH
    engine.ask("r1", prompt=10, output=3)
    engine.run()
    assert bool(engine.rows("checks", "prefill", op="mismatch")) == (mode != "off")
    if mode == "enforce":
        assert engine.code("r1") == "transfer_failed"
        assert engine.tokens("r1") == []
        assert engine.transport.written == []
        assert not engine.rows("requests", "prefill", op="first_token")
    else:
        assert engine.tokens("r1") == [11, 12, 13]


def test_passed_checks_are_counted(bench):
    engine = bench()
    engine.ask("r1", prompt=10, output=5)
    engine.run()
    (passed,) = engine.rows("checks", "decode", op="passed")
    # Four passes over three pages, then over four once the 13th token has begun a new one.
    tables = [len(works[0].pages) for _, _, works in engine.executors["decode"].passes]
    assert passed["n"] == sum(tables)
    assert tables == [3, 3, 4, 4]


def test_failures_are_counted_by_detector(bench):
    engine = bench(prefill_pages=5)
    engine.ask("r1", prompt=7 * PAGE)
    engine.run()
    assert engine.prefill.checks.failures == {"D1": 1}


def test_modes_are_parsed_and_the_unknown_is_refused():
    assert Defences.parse({"page-tag": "log"}).modes() == {**dict.fromkeys(DETECTORS, "enforce"), "page-tag": "log"}
    with pytest.raises(ValueError, match="unknown defence 'gate'; known: admission-gate"):
        Defences.parse({"gate": "off"})
    with pytest.raises(ValueError, match="defence page-tag: unknown mode 'on'; known: off, log, enforce"):
        Defences.parse({"page-tag": "on"})


BOUNDARIES = [
    (64, 36, None),
    (65, 1, "prompt_exceeds_pool"),
    (64, 37, "prompt_exceeds_context"),
    (1, 99, None),
    (1, 100, "prompt_exceeds_context"),
]


@pytest.mark.parametrize(("prompt", "output", "code"), BOUNDARIES)
def test_limits_at_their_boundaries(prompt, output, code):
    refusal = Limits("prefill", pool_tokens=64, context_tokens=100).refusal(prompt, output)
    assert (refusal.error.code if refusal else None) == code


def test_the_longest_prompt_leaves_room_for_one_token_of_answer():
    limits = Limits("prefill", pool_tokens=500, context_tokens=100)
    assert limits.refusal(limits.prompt_limit_tokens, 1) is None
    assert limits.refusal(limits.prompt_limit_tokens + 1, 1) is not None
