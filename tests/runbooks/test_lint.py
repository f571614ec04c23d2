"""Every way to spoil a runbook is reported at the line where it was spoiled."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from runbooks.errors import UsageError
from runbooks.lint import lint_files
from runbooks.lookup import find_runbook, library_files

GOOD = """---
schema: kvwitness.runbook/1
id: RB-42
version: 1.0.0
title: A test
alerts: [KvTest]
severity: 3
owner: tests
last_exercised: 2026-11-30
max_duration: 5m
roles: {initiator: operator, approver: lead}
params:
  reserve:
    kind: integer
    says: tokens to keep
    default: 0
---

# RB-42 A test

## Meaning

Something is wrong.

## Impact

Nothing is served.

## When not to use

Never.

## 1 Read

Read it.

```yaml step
id: read
phase: confirm
uses: engine.read_pools
expect:
  - {field: unreachable, op: empty, otherwise: undecided}
on_fail: goto:fix
timeout: 10s
```

## 2 Compare

```yaml step
id: compare
phase: confirm
uses: engine.check_limits
with:  # comparison
  workers: $steps.read.workers
  advertised_tokens: $steps.read.advertised_tokens
  reserve_tokens: $params.reserve
expect:
  - {field: pools_below_context, op: empty}
  - {field: smallest_margin_tokens, op: ">=", to: 0}
on_fail: abort
timeout: 5s
```

## 3 Fix

```yaml step
id: fix
phase: fix
uses: manual.confirm
with:
  ask: Is it fixed?
expect:  # last
  - {field: answer, op: "==", to: fixed}
on_fail: ask
timeout: 1h
```
"""

TODAY = date(2026, 12, 1)


def lint(tmp_path, text, today=TODAY):
    path = tmp_path / "RB-42-test.md"
    path.write_text(text)
    return lint_files([path], today)[1]


def line_of(text, mark):
    """Line of the only place that holds `mark`."""
    lines = [number for number, line in enumerate(text.splitlines(), start=1) if mark in line]
    assert len(lines) == 1, f"{mark!r} stands in lines {lines}"
    return lines[0]


def test_the_good_runbook_and_the_library_have_no_problem(tmp_path):
    assert lint(tmp_path, GOOD) == []
    assert lint_files(library_files(), TODAY)[1] == []


# (what to replace, with what, what marks the line that must be named, what must be said)
MUTATIONS = {
    "unknown front key": ("owner: tests", "owner: tests\nteam: x", "team: x", "unknown key 'team'"),
    "front key missing": ("owner: tests\n", "", "schema:", "'owner' is missing"),
    "bad id": ("id: RB-42", "id: R42", "id: R42", "'id'"),
    "bad version": ("version: 1.0.0", "version: '1'", "version: '1'", "'version'"),
    "severity out of range": ("severity: 3", "severity: 9", "severity: 9", "'severity'"),
    "old boolean word": ("severity: 3", "severity: yes", "severity: yes", "'severity'"),
    "duplicate key": ("owner: tests", "owner: tests\nowner: others", "owner: others", "key 'owner' twice"),
    "broken YAML": ("alerts: [KvTest]", "alerts: [KvTest", "severity: 3", "is not valid YAML"),
    "alias": ("alerts: [KvTest]", "alerts: [&a KvTest, *a]", "alerts:", "alias"),
    "bad default": ("default: 0", "default: many", "default: many", "'many' is no integer"),
    "unused parameter": ("  reserve_tokens: $params.reserve\n", "", "  reserve:", "'reserve' is used by no step"),
    "unknown kind": ("kind: integer", "kind: int", "kind: int", "'params.reserve.kind'"),
    "unknown step key": ("on_fail: abort", "on_fail: abort\nretry: 3", "retry: 3", "unknown key 'retry'"),
    "no expectation": (
        '  - {field: answer, op: "==", to: fixed}\n', "", "expect:  # last", "'expect'",
    ),
    "no timeout": ("on_fail: abort\ntimeout: 5s", "on_fail: abort", "id: compare", "'timeout' is missing"),
    "bad timeout": ("timeout: 5s", "timeout: 5", "timeout: 5", "is no duration"),
    "no on_fail": ("on_fail: ask\n", "", "id: fix", "'on_fail' is missing"),
    "goto nowhere": ("goto:fix", "goto:nowhere", "goto:nowhere", "'nowhere', which does not exist"),
    "goto back": ("on_fail: abort", "on_fail: goto:read", "goto:read", "goes back to step 'read'"),
    "duplicate id": ("id: compare", "id: fix\n#x", None, "step id 'fix' is used 2 times"),
    "unknown action": ("uses: engine.read_pools", "uses: engine.read_pool", "uses: engine.read_pool",
                       "did you mean 'engine.read_pools'"),
    "shell": ("uses: engine.read_pools", "uses: rm -rf /", "uses: rm", "unknown action"),
    "unknown input": ("reserve_tokens: $params.reserve", "reserve_token: $params.reserve", "reserve_token:",
                      "takes no 'reserve_token'"),
    "missing input": ("  workers: $steps.read.workers\n", "", "with:  # comparison", "needs 'workers'"),
    "literal of a wrong type": ("  ask: Is it fixed?", "  ask: 5", "ask: 5", "should be a valid string"),
    "unknown parameter": ("$params.reserve", "$params.other", "$params.other", "no parameter 'other'"),
    "unknown step": ("$steps.read.workers", "$steps.reed.workers", "$steps.reed", "no earlier step 'reed'"),
    "later step": ("$steps.read.workers", "$steps.fix.answer", "$steps.fix.answer", "no earlier step 'fix'"),
    "unknown output": ("$steps.read.workers", "$steps.read.worker", "$steps.read.worker", "gives no 'worker'"),
    "type mismatch": ("$steps.read.workers", "$steps.read.missing", "$steps.read.missing", "'workers' of action"),
    "spliced reference": ("ask: Is it fixed?", "ask: Is $params.reserve fixed?", "Is $params", "is no reference"),
    "unknown field": ("{field: answer,", "{field: reply,", "field: reply", "gives no 'reply'"),
    "unknown operator": ('op: ">="', "op: gte", "op: gte", "'expect.1.op'"),
    "operand missing": ('op: ">=", to: 0', 'op: ">="', 'op: ">="', "needs a 'to'"),
    "operand too much": ("field: pools_below_context, op: empty", "field: pools_below_context, op: empty, to: 1",
                         "op: empty, to: 1", "takes no 'to'"),
    "unknown predicate key": ("op: empty, otherwise: undecided", "op: empty, else: undecided", "else:",
                              "unknown key 'expect.0.else'"),
    "silent probe": ("uses: engine.read_pools", "uses: probe.boundary", "uses: probe.boundary", "say so in 'warn'"),
    "first phase": ("phase: confirm\nuses: engine.read_pools", "phase: contain\nuses: engine.read_pools",
                    "phase: contain", "has to begin with a step of phase 'confirm'"),
    "unknown phase": ("phase: fix", "phase: repair", "phase: repair", "'phase'"),
    "section missing": ("## Impact", "## Effect", None, "'## Impact' is missing"),
    "plain yaml fence": ("```yaml step\nid: fix", "```yaml  # plain\nid: fix", "```yaml  # plain", "a step fence is"),
    "two steps under one heading": ("## 2 Compare\n", "", None, "second step under one heading"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutation_is_reported_at_its_line(tmp_path, name):
    before, after, mark, said = MUTATIONS[name]
    assert GOOD.count(before) == 1
    text = GOOD.replace(before, after)
    problems = lint(tmp_path, text)
    matching = [problem for problem in problems if said in problem.message]
    assert matching, "\n".join(map(str, problems))
    assert all(problem.severity == "error" for problem in matching)
    if mark is not None:
        assert matching[0].line == line_of(text, mark), str(matching[0])


def test_phases_stand_in_order(tmp_path):
    text = GOOD.replace("phase: confirm\nuses: engine.check_limits", "phase: verify\nuses: engine.check_limits")
    problems = lint(tmp_path, text)
    assert [(p.line, p.message) for p in problems] == [
        (line_of(text, "phase: fix"), "phase 'fix' stands after phase 'verify'")
    ]


def test_several_faults_are_reported_at_once(tmp_path):
    text = GOOD.replace("owner: tests", "owners: tests").replace("timeout: 1h", "timeout: soon")
    assert len(lint(tmp_path, text)) == 3  # unknown key, missing key, bad timeout


def test_old_exercise_and_long_meaning_are_warnings(tmp_path):
    text = GOOD.replace("Something is wrong.", "word " * 121)
    problems = lint(tmp_path, text, today=TODAY + timedelta(days=120))
    assert [problem.severity for problem in problems] == ["warning", "warning"]
    assert problems[1].line == line_of(text, "last_exercised")


def test_front_matter_and_headings_are_needed(tmp_path):
    assert "has no front matter" in lint(tmp_path, GOOD.partition("# RB-42")[2])[0].message
    stray = GOOD.replace("# RB-42 A test\n", "```yaml step\nid: x\n```\n", 1)
    assert any("no heading above it" in problem.message for problem in lint(tmp_path, stray))


def test_library_has_one_runbook_per_alert_and_id(tmp_path):
    for name in ("RB-42-a.md", "RB-42-b.md"):
        (tmp_path / name).write_text(GOOD)
    _, problems = lint_files(sorted(tmp_path.glob("*.md")), TODAY)
    assert sorted({problem.message for problem in problems}) == [
        "alert KvTest leads to more than one runbook",
        "id RB-42 is used by another file too",
    ]
    assert {problem.line for problem in problems} == {line_of(GOOD, "alerts:"), line_of(GOOD, "id: RB-42")}


def test_unreadable_files_are_problems(tmp_path):
    (tmp_path / "bad.md").write_bytes(b"\xff\xfe")
    _, problems = lint_files([tmp_path / "bad.md", tmp_path / "none.md"], TODAY)
    assert [problem.message.split(":")[0] for problem in problems] == ["cannot be read", "cannot be read"]


def test_find_runbook_refuses_what_does_not_lint(tmp_path):
    path = tmp_path / "RB-42-test.md"
    path.write_text(GOOD.replace("timeout: 1h", "timeout: soon"))
    with pytest.raises(UsageError, match=r"RB-42-test\.md:\d+: error"):
        find_runbook(str(path), TODAY)
    with pytest.raises(UsageError, match="there is no runbook 'RB-77'; known: RB-01, "):
        find_runbook("RB-77", TODAY)
    path.write_text(GOOD)
    assert find_runbook(str(path), TODAY).head.id == "RB-42"
    assert find_runbook("RB-42", TODAY, Path(tmp_path)).path == path
