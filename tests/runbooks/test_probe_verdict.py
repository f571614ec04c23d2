"""What one probe's outcome means, case by case."""

import pytest

from runbooks.actions.probe_verdict import ProbeResult, Verdict, describe, judge

GOOD = {
    "kind": "boundary",
    "place": "start",
    "rid": "r-1",
    "tenant": "a",
    "prompt_tokens": 512,
    "status": 200,
    "code": "",
    "usage_prompt_tokens": 512,
    "usage_completion_tokens": 32,
    "seconds": 0.1,
    "expected": 32,
    "echoed": 32,
    "foreign": [],
}
REFUSED = {**GOOD, "kind": "over", "status": 400, "code": "prompt_exceeds_pool", "usage_completion_tokens": None}
SILENT = {"status": None, "code": "timeout", "usage_completion_tokens": None}
RIGHT, WRONG, UNDECIDED = Verdict.RIGHT, Verdict.WRONG, Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("base", "changes", "alive", "verdict"),
    [
        (GOOD, {}, None, RIGHT),
        (GOOD, {"echoed": 31}, None, WRONG),
        (GOOD, {"usage_prompt_tokens": 511}, None, UNDECIDED),
        (GOOD, {"usage_prompt_tokens": None}, None, UNDECIDED),
        (GOOD, {"status": 400, "code": "prompt_exceeds_pool"}, None, WRONG),
        (GOOD, {"status": 502, "code": "covered_less_than_reserved"}, None, WRONG),
        (GOOD, {"status": 503, "code": "busy"}, None, UNDECIDED),
        (GOOD, SILENT, None, UNDECIDED),
        (REFUSED, {}, None, RIGHT),
        (REFUSED, {"status": 413}, None, RIGHT),
        (REFUSED, {"code": ""}, None, WRONG),
        (REFUSED, {"usage_completion_tokens": 1}, None, WRONG),
        (REFUSED, {"status": 200, "code": ""}, None, WRONG),
        (REFUSED, {"status": 502, "code": "covered_less_than_reserved"}, None, WRONG),
        (REFUSED, {"status": 500, "code": ""}, None, WRONG),
        (REFUSED, {"status": 401, "code": "unauthorized"}, None, UNDECIDED),
        (REFUSED, {"status": 429, "code": "busy"}, None, UNDECIDED),
        (REFUSED, {"status": 503, "code": "busy"}, None, UNDECIDED),
        (REFUSED, SILENT, True, WRONG),
        (REFUSED, SILENT, False, UNDECIDED),
        (REFUSED, {**SILENT, "code": "unreachable"}, None, UNDECIDED),
        (REFUSED, {**SILENT, "code": "broken"}, None, UNDECIDED),
    ],
)
def test_verdicts(base, changes, alive, verdict):
    def gateway_alive():
        assert alive is not None, "the gateway is asked only after a silence beyond the limit"
        return alive

    result = ProbeResult(**{**base, **changes})
    found, sentence = judge(result, gateway_alive)
    assert found is verdict, sentence
    assert sentence.startswith(f"{result.kind} (512 tokens, start): ")


def test_a_line_names_foreign_nonces():
    line = describe(ProbeResult(**{**GOOD, "foreign": ["donor-1 of a (32 of 32 characters)"]}))
    assert line.endswith("FOREIGN: donor-1 of a (32 of 32 characters)")
    assert "no answer timeout" in describe(ProbeResult(**{**GOOD, **SILENT}))
