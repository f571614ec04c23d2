"""Every kind of wrong scenario is refused with file, line, field, what was found and what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.simulation.scenario import KnownNames, load_scenario, parse_scenario
from engine.simulation.scenario_source import Model, ScenarioError

RIGHT = """\
name: incident
seed: 155
start: 2026-06-01T00:00:00Z
duration: 13d
clock: {offset: [-2ms, 2ms], drift_ppm: 1.5}
recording:
  heartbeat: 1s
fleet:
  - group: prefill
    role: prefill
    count: 2
    pages: {kv: 42_580, index: 42_580}
    page_tokens: 16
    page_bytes: 1Mi
    context_tokens: 1Mi
    defences:
      modes: {covered-count: off}
  - group: decode
    role: decode
    pages: {kv: 100k}
    context_tokens: 1Mi
    chunk_tokens: 4096
    batch_tokens: 8192
    prefix_cache: {enabled: true, scope: tenant, key_fields: [adapter]}
defences:
  modes: {page-tag: enforce}
  on_timeout: quarantine
  hold_timeout: 30s
  scrub: false
costs:
  prefill: {base: 4ms, per_token_us: 9.5}
traffic:
  - name: web
    arrivals: {kind: poisson, rate_per_s: 3}
    window: {from: 1h, to: 2h}
    prompt:
      - {kind: fixed, value: 10}
      - {kind: uniform, min: 5, max: 9, weight: 2}
    output: {kind: choice, values: [1, 2], weights: [3, 1]}
    tenants: [acme, {name: globex, weight: 3}]
    prefixes:
      - {name: base, tokens: 512, share: 0.5}
    purposes: {customer: 9, research: 1}
    disconnects: {probability: 0.1, after: 2s}
  - name: chat
    arrivals: {kind: times, at: [1s, 2s]}
    prompt: 100
    output: 10
    tenants: {count: 20, zipf: 1.1}
    conversations: {turns: 4, think: {kind: lognormal, median: 20s, sigma: 1}}
faults:
  - name: short-handoff
    workers: [prefill-1]
    window: {from: 2d}
    probability: 0.3
    parameters: {pages: 1}
script:
  - {at: 1s, action: request, rid: a, tenant: acme, prompt: 64, max_tokens: 8, prefill: prefill-0, decode: decode-0}
  - {at: 1s, action: gate, rid: a}
  - {at: 2s, action: post, rid: a, count: 2}
  - {at: 3s, action: land, rid: a, every: 1ms}
  - {at: 3s, action: reserve, outsider: o, worker: decode-0, pages: 4}
  - {at: 4s, action: free, outsider: o, worker: decode-0}
  - {at: 5s, action: steps, worker: decode-0, begins: [0s, 10ms], lasts: 5ms}
  - {at: 6s, action: abort, rid: web-17}
losses:
  - {kind: rows, tables: [pages], workers: [decode], probability: 0.01}
  - {kind: kill, worker: decode-0, at: 3h}
  - {kind: clock-jump, worker: decode-0, at: 3h, by: -2s}
"""


class Pages(Model):
    """Parameters of the fault in RIGHT."""

    pages: int


KNOWN = KnownNames(frozenset({"covered-count", "page-tag"}), {"short-handoff": Pages, "late-write": None})


def told(text: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "bad.yaml", KNOWN)
    return str(caught.value).splitlines()


def test_the_text_that_the_cases_spoil_is_right():
    parse_scenario(RIGHT, "right.yaml", KNOWN)


# (what is replaced, by what, and all that is then said)
CASES = [
    (
        "name: incident",
        "name: inci dent",
        ["1: name: found 'inci dent'; expected letters, digits, '.', '_' and '-', a letter or digit first"],
    ),
    ("name: incident\n", "", ["1: name: found nothing; expected this key"]),
    (
        "seed: 155",
        "sead: 155",
        [
            "1: seed: found nothing; expected this key",
            "2: sead: found an unknown key; expected a known name such as 'seed'",
        ],
    ),
    ("seed: 155", "seed: -1", ["2: seed: found -1; expected at least 0"]),
    ("seed: 155", "seed: 1.5", ["2: seed: found 1.5; expected a whole number such as 4096, 1_048_576, 200k or 1Mi"]),
    ("seed: 155", "seed: true", ["2: seed: found true; expected a whole number such as 4096, 1_048_576, 200k or 1Mi"]),
    (
        "2026-06-01T00:00:00Z",
        "2026-06-01",
        ["3: start: found '2026-06-01'; expected a time with its zone such as 2026-06-01T00:00:00Z"],
    ),
    (
        "2026-06-01T00:00:00Z",
        "2026-13-01T00:00:00Z",
        ["3: start: found '2026-13-01T00:00:00Z'; expected a time with its zone such as 2026-06-01T00:00:00Z"],
    ),
    (
        "duration: 13d",
        "duration: 13",
        ["4: duration: found 13; expected a duration such as 250us, 3ms, 2s, 5m, 1h, 13d or 1h30m"],
    ),
    ("duration: 13d", "duration: 0", ["4: duration: found 0; expected more than 0"]),
    (
        "duration: 13d",
        "duration: 13 days",
        ["4: duration: found '13 days'; expected a duration such as 250us, 3ms, 2s, 5m, 1h, 13d or 1h30m"],
    ),
    ("duration: 13d", "duration: 0.5us", ["4: duration: found '0.5us'; expected a duration of whole microseconds"]),
    ("duration: 13d", "duration: 13d\nname: x", ["5: name: found this key twice; expected it once"]),
    ("[-2ms, 2ms]", "[2ms, -2ms]", ["5: clock.offset: found a list of 2; expected [lowest, highest] in this order"]),
    (
        "[-2ms, 2ms]",
        "[1ms, 2ms, 3ms]",
        ["5: clock.offset: found a list of 3; expected one value, or [lowest, highest]"],
    ),
    ("drift_ppm: 1.5", "drift_ppm: .inf", ["5: clock.drift_ppm: found inf; expected a finite number"]),
    (
        "heartbeat: 1s",
        "heartbeet: 1s",
        ["7: recording.heartbeet: found an unknown key; expected a known name such as 'heartbeat'"],
    ),
    ("role: prefill", "role: prefil", ["10: fleet[0].role: found 'prefil'; expected a known name such as 'prefill'"]),
    ("role: prefill", "role: decode", ["8: fleet: found no prefill group; expected at least one group of each role"]),
    (
        "count: 2\n",
        "count: two\n",
        ["11: fleet[0].count: found 'two'; expected a whole number such as 4096, 1_048_576, 200k or 1Mi"],
    ),
    (
        "kv: 42_580",
        "kb: 42_580",
        [
            "12: fleet[0].pages.kb: found an unknown key; expected one of kv, index, swa, state, draft, slot",
            "12: fleet[0].pages.kv: found nothing; expected this key",
        ],
    ),
    ("pages: {kv: 42_580, index: 42_580}", "pages: 42_580", ["12: fleet[0].pages: found 42580; expected a mapping"]),
    ("page_tokens: 16", "page_tokens: 0", ["13: fleet[0].page_tokens: found 0; expected at least 1"]),
    (
        "page_tokens: 16",
        "page_tokns: 16",
        ["13: fleet[0].page_tokns: found an unknown key; expected a known name such as 'page_tokens'"],
    ),
    ("group: decode", "group: prefill", ["18: fleet[1].group: found 'prefill'; expected a name that no other one has"]),
    (
        "group: decode",
        "group: prefill-1",
        ["18: fleet[1].group: found 'prefill-1'; expected a name that no worker has"],
    ),
    (
        "chunk_tokens: 4096",
        "chunk_tokens: 16k",
        ["22: fleet[1].chunk_tokens: found 16000; expected at most batch_tokens, 8192"],
    ),
    (
        "scope: tenant",
        "scope: team",
        ["24: fleet[1].prefix_cache.scope: found 'team'; expected a known name such as 'tenant'"],
    ),
    ("enabled: true", "enabled: yes", ["24: fleet[1].prefix_cache.enabled: found 'yes'; expected true or false"]),
    (
        "key_fields: [adapter]",
        "key_fields: adapter",
        ["24: fleet[1].prefix_cache.key_fields: found 'adapter'; expected a list"],
    ),
    (
        "covered-count: off",
        "covered-cnt: off",
        ["17: fleet[0].defences.modes.covered-cnt: found 'covered-cnt'; expected a known name such as 'covered-count'"],
    ),
    (
        "page-tag: enforce",
        "page-tag: on",
        ["26: defences.modes.page-tag: found 'on'; expected one of off, log, enforce"],
    ),
    (
        "covered-count: off",
        "covered-count: false",
        ["17: fleet[0].defences.modes.covered-count: found false; expected one of off, log, enforce"],
    ),
    (
        "on_timeout: quarantine",
        "on_timeout: free",
        ["27: defences.on_timeout: found 'free'; expected one of quarantine, release"],
    ),
    ("scrub: false", "scrub: no", ["29: defences.scrub: found 'no'; expected true or false"]),
    ("base: 4ms", "base: -4ms", ["31: costs.prefill.base: found '-4ms'; expected more than 0"]),
    ("per_token_us: 9.5", "per_token_us: '9.5'", ["31: costs.prefill.per_token_us: found '9.5'; expected a number"]),
    (
        "kind: poisson",
        "kind: poison",
        ["34: traffic[0].arrivals.kind: found 'poison'; expected a known name such as 'poisson'"],
    ),
    (
        "kind: poisson, ",
        "",
        ["34: traffic[0].arrivals.kind: found nothing; expected one of poisson, diurnal, constant, burst, times"],
    ),
    ("rate_per_s: 3}", "rate_per_s: 0}", ["34: traffic[0].arrivals.rate_per_s: found 0; expected at least 1e-06"]),
    (
        "{from: 1h, to: 2h}",
        "{from: 2h, to: 1h}",
        ["35: traffic[0].window.to: found 1h; expected a time after 2h, where the window opens"],
    ),
    (
        "{from: 1h, to: 2h}",
        "{from: 14d}",
        ["35: traffic[0].window.from: found 14d; expected a time before 13d, the scenario's end"],
    ),
    (
        "{from: 1h, to: 2h}",
        "{start: 14d}",
        ["35: traffic[0].window.start: found an unknown key; expected one of from, to"],
    ),
    ("min: 5, max: 9", "min: 5, max: 4", ["38: traffic[0].prompt[1].max: found 4; expected at least min, 5"]),
    ("min: 5, max: 9", "min: 5", ["38: traffic[0].prompt[1].max: found nothing; expected this key"]),
    ("value: 10", "value: 0", ["37: traffic[0].prompt[0].value: found 0; expected at least 1"]),
    ("prompt: 100", "prompt: 0", ["47: traffic[1].prompt: found 0; expected at least 1"]),
    (
        "prompt: 100",
        "prompt: null",
        ["47: traffic[1].prompt: found nothing; expected a value, a distribution or a list of distributions"],
    ),
    (
        "prompt: 100",
        "prompt: []",
        ["47: traffic[1].prompt: found a list of 0; expected a distribution with a weight above 0"],
    ),
    (
        "weights: [3, 1]",
        "weights: [3]",
        ["39: traffic[0].output.weights: found 1 weights; expected 2, one for each of values"],
    ),
    (
        "weights: [3, 1]",
        "weights: [0, 0]",
        ["39: traffic[0].output.weights: found no weight above 0; expected at least one"],
    ),
    ("values: [1, 2]", "values: [1, -2]", ["39: traffic[0].output.values[1]: found -2; expected at least 1"]),
    (
        "[acme, {name: globex, weight: 3}]",
        "[acme, acme]",
        ["40: traffic[0].tenants[1]: found 'acme'; expected a name that no other one has"],
    ),
    (
        "[acme, {name: globex, weight: 3}]",
        "{zipf: 1}",
        ["40: traffic[0].tenants: found neither or both; expected either a list of tenants or a count"],
    ),
    (
        "{name: globex, weight: 3}",
        "{nam: globex}",
        [
            "40: traffic[0].tenants[1].nam: found an unknown key; expected a known name such as 'name'",
            "40: traffic[0].tenants[1].name: found nothing; expected this key",
        ],
    ),
    (
        "acme, {name",
        "ac me, {name",
        [
            "40: traffic[0].tenants[0]: found 'ac me'; expected letters, digits, '.', '_' and '-', a letter or digit first"
        ],
    ),
    ("share: 0.5", "share: 50", ["42: traffic[0].prefixes[0].share: found 50; expected at most 1.0"]),
    (
        "purposes: {customer: 9, research: 1}",
        "purposes: {customer: 0}",
        ["43: traffic[0].purposes: found a mapping; expected at least one weight above 0"],
    ),
    (
        "customer: 9",
        "cust omer: 9",
        [
            "43: traffic[0].purposes.cust omer: found 'cust omer'; expected letters, digits, '.', '_' and '-', a letter or digit first"
        ],
    ),
    ("name: chat", "name: web", ["45: traffic[1].name: found 'web'; expected a name that no other one has"]),
    ("[1s, 2s]", "[2s, 1s]", ["46: traffic[1].arrivals.at[1]: found 1s; expected no time before 2s, the one above it"]),
    (
        "zipf: 1.1",
        "zip: 1.1",
        ["49: traffic[1].tenants.zip: found an unknown key; expected a known name such as 'zipf'"],
    ),
    (
        "median: 20s",
        "median: 20",
        [
            "50: traffic[1].conversations.think.median: found 20; expected a duration such as 250us, 3ms, 2s, 5m, 1h, 13d or 1h30m"
        ],
    ),
    ("sigma: 1}", "sigma: -1}", ["50: traffic[1].conversations.think.sigma: found -1; expected at least 0.0"]),
    (
        "name: short-handoff",
        "name: short-hand-off",
        ["52: faults[0].name: found 'short-hand-off'; expected a known name such as 'short-handoff'"],
    ),
    (
        "[prefill-1]",
        "[prefill-2]",
        ["53: faults[0].workers[0]: found 'prefill-2'; expected a known name such as 'prefill-1'"],
    ),
    ("probability: 0.3", "probability: 30%", ["55: faults[0].probability: found '30%'; expected a number"]),
    (
        "{pages: 1}",
        "{pags: 1}",
        [
            "56: faults[0].parameters: found nothing; expected this key",
            "56: faults[0].parameters.pags: found an unknown key; expected a known name such as 'pages'",
        ],
    ),
    (
        "{pages: 1}",
        "{pages: x}",
        ["56: faults[0].parameters.pages: found 'x'; expected a valid integer, unable to parse string as an integer"],
    ),
    (
        "name: short-handoff",
        "name: late-write",
        ["56: faults[0].parameters.pages: found an unknown key; expected none"],
    ),
    ("action: gate", "action: gates", ["59: script[1].action: found 'gates'; expected a known name such as 'gate'"]),
    (
        "prefill: prefill-0",
        "prefill: decode-0",
        ["58: script[0].prefill: found 'decode-0', a decode worker; expected a prefill worker"],
    ),
    (
        "decode: decode-0}",
        "decode: decode-9}",
        ["58: script[0].decode: found 'decode-9'; expected a known name such as 'decode-0'"],
    ),
    (
        "at: 3s, action: land",
        "at: 1s, action: land",
        ["61: script[3].at: found 1s; expected no time before 2s, the action above"],
    ),
    (
        "rid: a, count: 2",
        "rid: b, count: 2",
        ["60: script[2].rid: found 'b'; expected the rid of a request above it or of the traffic"],
    ),
    (
        "action: gate, rid: a",
        "action: abort, rid: a",
        [
            "60: script[2].rid: found 'a'; expected the rid of a handoff gated above it",
            "61: script[3].rid: found 'a'; expected the rid of a handoff gated above it",
        ],
    ),
    (
        "rid: web-17",
        "rid: wob-17",
        ["65: script[7].rid: found 'wob-17'; expected the rid of a request above it or of the traffic"],
    ),
    (
        "pages: 4}",
        "pages: 4, component: swa}",
        [
            "62: script[4].component: found 'swa'; expected one of kv",
            "63: script[5].outsider: found 'o'; expected an outsider with reserved kv pages on decode-0",
        ],
    ),
    (
        "free, outsider: o",
        "free, outsider: p",
        ["63: script[5].outsider: found 'p'; expected an outsider with reserved kv pages on decode-0"],
    ),
    ("prompt: 64", "prompt: [{seed: 1}]", ["58: script[0].prompt[0].length: found nothing; expected this key"]),
    ("lasts: 5ms", "lasts: 0s", ["64: script[6].lasts: found '0s'; expected more than 0"]),
    ("at: 6s", "at: 15d", ["65: script[7].at: found 15d; expected a time before 13d, the scenario's end"]),
    (
        "rid: a, tenant",
        "rid: web-3, tenant",
        [
            "58: script[0].rid: found 'web-3'; expected a rid that no other request has",
            "59: script[1].rid: found 'a'; expected the rid of a request above it or of the traffic",
            "60: script[2].rid: found 'a'; expected the rid of a request above it or of the traffic",
            "61: script[3].rid: found 'a'; expected the rid of a request above it or of the traffic",
        ],
    ),
    (
        "tables: [pages]",
        "tables: [page]",
        ["67: losses[0].tables[0]: found 'page'; expected a known name such as 'pages'"],
    ),
    ("kind: kill", "kind: kil", ["68: losses[1].kind: found 'kil'; expected a known name such as 'kill'"]),
    (
        "by: -2s",
        "by: 2",
        ["69: losses[2].by: found 2; expected a duration such as 250us, 3ms, 2s, 5m, 1h, 13d or 1h30m"],
    ),
    (
        "worker: decode-0, at: 3h}",
        "worker: decode, at: 3h}",
        ["68: losses[1].worker: found 'decode'; expected a known name such as 'decode-0'"],
    ),
    ("probability: 0.01", "probability: 2", ["67: losses[0].probability: found 2; expected at most 1.0"]),
    ("seed: 155", "seed: &a 155\nx: *a", ["2: x: found a YAML alias; expected the value written out"]),
    ("seed: 155", "seed: [1", ["3: found broken text (expected ',' or ']', but got ':'); expected plain YAML"]),
    (
        "seed: 155",
        "seed: !!python/object:x 1",
        [
            "2: found broken text (could not determine a constructor for the tag 'tag:yaml.org,2002:python/object:x'); expected plain YAML"
        ],
    ),
    ("seed: 155", "? [a]\n: 1", ["2: found a key that is no plain word; expected a name"]),
    (
        "name: incident",
        "name: 155",
        ["1: name: found 155; expected text (in quotes where it looks like something else)"],
    ),
    (
        "max: 9",
        "maxx: 9",
        [
            "38: traffic[0].prompt[1].max: found nothing; expected this key",
            "38: traffic[0].prompt[1].maxx: found an unknown key; expected a known name such as 'max'",
        ],
    ),
    (
        "{kv: 100k}",
        "{kv: 100k, index: [1]}",
        ["20: fleet[1].pages.index: found a list of 1; expected a whole number such as 4096, 1_048_576, 200k or 1Mi"],
    ),
    (
        "group: prefill\n",
        "grp: prefill\n    gropu: x\n",
        [
            "9: fleet[0].group: found nothing; expected this key",
            "9: fleet[0].grp: found an unknown key; expected a known name such as 'group'",
            "10: fleet[0].gropu: found an unknown key; expected a known name such as 'group'",
        ],
    ),
    (
        "count: 2\n",
        "count: 9000\n",
        ["8: fleet: found 9001 worker ranks; expected at most 8191, as page tags can name"],
    ),
    (
        "seed: 155",
        "seed: 99_999_999_999_999_999_999",
        ["2: seed: found 99999999999999999999; expected less than 4611686018427387904"],
    ),
    ("duration: 13d", "duration: 400000d", ["4: duration: found '400000d'; expected a duration below 285 years"]),
    (
        "page_bytes: 1Mi",
        "page_bytes: 1Mb",
        ["14: fleet[0].page_bytes: found '1Mb'; expected a whole number such as 4096, 1_048_576, 200k or 1Mi"],
    ),
    (
        "page_bytes: 1Mi",
        "page_bytes: {kv: 1Mi}",
        ["14: fleet[0].page_bytes: found a mapping; expected a whole number such as 4096, 1_048_576, 200k or 1Mi"],
    ),
    ("drift_ppm: 1.5", "drift_ppm: 1e6", ["5: clock.drift_ppm: found 1000000.0; expected at most 100000.0"]),
    (
        "begins: [0s, 10ms]",
        "begins: [0s, 1ms]",
        ["64: script[6].begins[1]: found 1ms; expected 5ms or later, after the pass before"],
    ),
    ("begins: [0s, 10ms]", "begins: []", ["64: script[6].begins: found a list of 0; expected at least one entry"]),
    ("group: decode", "group: gateway", ["18: fleet[1].group: found 'gateway'; expected a name that no worker has"]),
    (
        "name: short-handoff",
        "name: ''",
        ["52: faults[0].name: found ''; expected letters, digits, '.', '_' and '-', a letter or digit first"],
    ),
    (
        "name: incident",
        "name: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        [
            "1: name: found 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...'; expected at most 64 characters"
        ],
    ),
    ("{count: 20, zipf: 1.1}", "{count: 2M}", ["49: traffic[1].tenants.count: found '2M'; expected at most 1000000"]),
    ("{count: 20, zipf: 1.1}", "[]", ["49: traffic[1].tenants: found a list of 0; expected at least one entry"]),
    (
        "name: base, tokens: 512, share: 0.5}",
        "name: base, tokens: 512}\n      - {name: base, tokens: 9}",
        ["43: traffic[0].prefixes[1].name: found 'base'; expected a name that no other one has"],
    ),
    ("faults:", "fault:", ["51: fault: found an unknown key; expected a known name such as 'faults'"]),
    ("recording:\n  heartbeat: 1s", "recording: 5", ["6: recording: found 5; expected a mapping"]),
    ("window: {from: 2d}", "window: 2d", ["54: faults[0].window: found '2d'; expected a mapping"]),
    ("seed: 155", "seed: 007", ["2: seed: found '007'; expected a whole number such as 4096, 1_048_576, 200k or 1Mi"]),
    (
        "seed: 155",
        "seed:\t155\n\tx: 1",
        ["2: found broken text (found character '\\t' that cannot start any token); expected plain YAML"],
    ),
    ("kind: rows, ", "", ["67: losses[0].kind: found nothing; expected one of rows, kill, clock-jump"]),
    ("costs:\n", "costs: {}\ncosts:\n", ["31: costs: found this key twice; expected it once"]),
    ("at: 3h}", "at: 14d}", ["68: losses[1].at: found 14d; expected a time before 13d, the scenario's end"]),
    (
        "[0s, 10ms], lasts: 5ms",
        "[0s, 10ms], last: 5ms",
        [
            "64: script[6].last: found an unknown key; expected a known name such as 'lasts'",
            "64: script[6].lasts: found nothing; expected this key",
        ],
    ),
]


@pytest.mark.parametrize(("right", "wrong", "expected"), CASES)
def test_what_is_wrong_is_said(right, wrong, expected):
    assert RIGHT.count(right) == 1
    assert told(RIGHT.replace(right, wrong)) == [f"bad.yaml:{line}" for line in expected]


def test_all_faults_are_told_at_once_in_order_of_lines():
    text = RIGHT.replace("seed: 155", "seed: x").replace("kind: kill", "kind: kil").replace("count: 2\n", "count: 0\n")
    assert [line.split(" found")[0] for line in told(text)] == [
        "bad.yaml:2: seed:",
        "bad.yaml:11: fleet[0].count:",
        "bad.yaml:68: losses[1].kind:",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "bad.yaml:1: found nothing; expected a mapping"),
        ("# a comment\n", "bad.yaml:1: found nothing; expected a mapping"),
        ("- 1\n- 2\n", "bad.yaml:1: found a list of 2; expected a mapping"),
        ("scenario", "bad.yaml:1: found 'scenario'; expected a mapping"),
        (
            "a: 1\n---\nb: 2\n",
            "bad.yaml:2: found broken text (but found another document); expected plain YAML",
        ),
        (
            "name: \0",
            "bad.yaml:1: found broken text (unacceptable character #x0000: special characters are not allowed in "
            '"<unicode string>", position 6); expected plain YAML',
        ),
        ("[" * 20 + "]" * 20, "bad.yaml:1: found deeper nesting; expected at most 16 levels"),
        ("a: {<<: {b: 1}}", "bad.yaml:1: a: found an unknown key; expected one of"),
    ],
)
def test_what_is_no_scenario_at_all(text, expected):
    assert told(text)[0].startswith(expected)


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path):
    path = tmp_path / "latin.yaml"
    path.write_bytes("name: é".encode("latin-1"))
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    assert str(caught.value) == f"{path}:1: found byte 0xe9 at 6; expected UTF-8 text"


def test_without_known_names_any_defence_and_fault_may_stand():
    text = RIGHT.replace("covered-count", "of-tomorrow").replace("name: short-handoff", "name: of-tomorrow")
    assert parse_scenario(text).faults[0].name == "of-tomorrow"


def test_a_scenario_made_in_code_is_refused_with_all_places():
    with pytest.raises(
        ValueError, match=r"script\[0\].worker: found 'decode-4', expected a known name such as 'decode-"
    ):
        parse_scenario(RIGHT).model_validate(
            parse_scenario(RIGHT).model_dump(mode="json", by_alias=True)
            | {"script": [{"at": 0, "action": "audit", "worker": "decode-4"}]}
        )
