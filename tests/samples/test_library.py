"""The query library on the samples: what each query says of a scenario is what was played, and of a healthy week nothing."""

from __future__ import annotations

import json
from functools import cache
from random import Random

import pytest
from catalogue import SAMPLES, Sample

from engine.ledger.reader import Ledger, read_ledger
from forensics import library
from forensics.ask import FOREIGN_READS, GAPS
from forensics.catalogue import Query, QueryError, load_queries
from forensics.foreign_reads import ForeignReads, foreign_reads
from forensics.library import Limits, Prepared, asking, run_query
from forensics.parameters import bound
from forensics.window import zone

UTC = zone("UTC")
LIBRARY = [query for query in load_queries() if query.name not in (FOREIGN_READS, GAPS)]
SMALL = [sample for sample in SAMPLES if not sample.large]
GIVEN = {
    "page-life": {"worker": "decode-0", "page": "5"}, "request-life": {"rid": "victim"}, "room-life": {"room": "1"},
    "proof": {"rid": "victim"}, "prefill-rank": {"rid": "victim"},
}  # fmt: skip
"""For queries that need a parameter."""


@cache
def ledger_of(name: str) -> Ledger:
    (sample,) = [sample for sample in SAMPLES if sample.name == name]
    return read_ledger(sample.ledger)


@cache
def judged(name: str) -> ForeignReads:
    return foreign_reads(ledger_of(name), engine="replay")  # that the engines agree is test_samples' to say


def rows(name: str, sample: str, **given: str) -> list[dict]:
    (query,) = [query for query in LIBRARY if query.name == name]
    values = bound(query, {key.rstrip("_"): value for key, value in given.items()}, UTC, None)
    return run_query(query, ledger_of(sample), values, lambda: judged(sample), Limits()).to_pylist()


def picked(found: list[dict], *names: str) -> list[tuple]:
    return [tuple(row[name] for name in names) for row in found]


def of_class(number: str) -> str:
    return next(sample.name for sample in SAMPLES if sample.name.startswith(f"classes/{number}"))


def expected_of(sample: Sample) -> dict:
    return json.loads(sample.expected.read_text())


def listed(text: str) -> set[int]:
    parts = [part.partition("-") for part in text.split(",")]
    return {page for low, _, high in parts for page in range(int(low), int(high or low) + 1)}


@pytest.mark.parametrize("query", LIBRARY, ids=lambda query: query.name)
@pytest.mark.parametrize("sample", ["abort-race", "gappy", "prefix-cross-tenant"])
def test_it_has_the_columns_that_it_says(query: Query, sample: str):
    rows(query.name, sample, **GIVEN.get(query.name, {}))  # raises where it has not


@pytest.mark.parametrize("query", [q for q in LIBRARY if q.rows == "finding"], ids=lambda query: query.name)
def test_of_a_healthy_week_it_finds_nothing(query: Query):
    assert rows(query.name, "healthy") == []


@pytest.mark.parametrize("sample", SMALL, ids=lambda sample: sample.name)
def test_contaminated_responses_donors_and_tenants_are_those_of_physical_truth(sample: Sample):
    expected = expected_of(sample)["contaminated"]
    found = rows("contaminated-responses", sample.name)
    assert {row["rid"]: row["counted"] for row in found} == {
        one["rid"]: "yes" if one["purpose"] == "customer" else f"purpose {one['purpose']}" for one in expected
    }
    assert {rid: row["donors"] for rid, row in zip((r["rid"] for r in found), found, strict=True)} == {
        one["rid"]: one["donors"] for one in expected
    }
    donors = rows("donors", sample.name)
    assert {row["donor_rid"] for row in donors if row["readers"]} == {
        donor for one in expected for donor in one["donors"]
    }
    told = rows("tenants-to-notify", sample.name)
    tenant_of = {row["rid"]: row["tenant"] for row in judged(sample.name).responses.to_pylist()}
    assert {row["tenant"] for row in told if row["because"] == "answer contaminated"} == {
        tenant_of[one["rid"]] for one in expected if one["purpose"] == "customer"
    }
    assert {row["tenant"] for row in told if row["because"] == "content exposed"} == {
        tenant_of[donor] for one in expected for donor in one["donors"]
    }


@pytest.mark.parametrize("sample", SMALL, ids=lambda sample: sample.name)
def test_leaks_are_counted_to_the_page(sample: Sample):
    leaked: dict[str, int] = {}
    for row in rows("leaks", sample.name):
        leaked[row["worker"]] = leaked.get(row["worker"], 0) + row["pages"]
    assert leaked == expected_of(sample)["leaked_pages"]


@pytest.mark.parametrize(
    ("number", "reader", "pages"), [("m01", "victim", 40), ("m02", "victim", 30), ("m14", "victim", 30)]
)
def test_a_handoff_that_was_committed_short_names_its_first_missing_page(number: str, reader: str, pages: int):
    (one,) = [row for row in rows("transfer-mismatch", of_class(number)) if row["rid"] == reader]
    sample = next(sample for sample in SAMPLES if sample.name == of_class(number))
    (truth,) = [one for one in expected_of(sample)["contaminated"] if one["rid"] == reader]
    ((pool, wrong),) = truth["pages"].items()
    assert (one["pool"], one["reserved"]) == (pool.split("/")[1], pages)
    if number == "m01":  # its table is pages 1-40; page 1 came, as the placeholder's
        assert (one["done"], one["missing_from"]) == (1, 1)
    else:  # its table is pages 1-30, in order
        assert (one["done"], one["missing_from"]) == (pages - len(listed(wrong)), min(listed(wrong)) - 1)


def test_pages_that_were_written_elsewhere_are_counted():
    assert picked(rows("transfer-mismatch", of_class("m13")), "rid", "misplaced", "what") == [
        ("shifted", 20, "written to other pages than were granted")
    ]


def test_a_component_that_lacks_is_named():
    found = rows("component-coverage", of_class("m14"))
    assert picked(found[:1], "rid", "components", "whole", "lacking") == [("victim", 2, 1, "index 15 of 30")]
    assert all(row["lacking"] is None for row in found[1:])


def test_late_writes_are_the_batches_that_landed_after_the_free():
    (one,) = rows("late-writes", of_class("m03"))
    assert (one["rid"], one["next_rid"], one["next_read"], one["sure"]) == ("donor", "victim", "yes", "by clock")
    assert 600 <= one["late_ms"] < 800  # the writer waited for 600 ms
    assert picked(rows("late-writes", "abort-race"), "rid", "next_rid") == [
        ("donor", "victim"), ("donor-b", "near-before"), ("donor-c", "near-posted"), ("donor-d", "near-after"),
    ]  # fmt: skip


def test_pages_that_were_posted_before_they_were_computed():
    (one,) = rows("early-reads", of_class("m06"))
    assert (one["rid"], one["worker"]) == ("victim", "prefill-0")
    (truth,) = expected_of(next(s for s in SAMPLES if s.name == of_class("m06")))["contaminated"]
    assert one["pages"] >= len(listed(truth["pages"]["decode-0/kv"]))  # some were computed before they were read


def test_sources_that_were_reused_are_told_from_those_that_were_only_freed():
    found = {row["rid"]: row for row in rows("source-reuse", of_class("m05"))}
    assert set(found) == {"victim", "donor"}
    assert (found["victim"]["by_rid"], found["donor"]["rewritten"]) == ("donor", 0)
    (truth,) = expected_of(next(s for s in SAMPLES if s.name == of_class("m05")))["contaminated"]
    assert found["victim"]["rewritten"] >= len(listed(truth["pages"]["decode-0/kv"]))


def test_a_page_that_was_freed_while_it_was_read():
    (one,) = rows("use-after-free", of_class("m07"))
    assert (one["rid"], one["pages"], one["taken_over"], one["by_rid"]) == ("victim", 4, 4, "donor")


def test_double_owners_and_double_frees():
    found = rows("double-owners", of_class("m08"))
    (two,) = [row for row in found if row["what"] == "two owners"]
    assert (two["rid"], two["other_rid"], two["page_list"]) == ("victim", "donor", [1, 2, 3])
    assert {row["rid"] for row in found if row["what"] == "freed twice"} == {"freed-twice", "victim", "donor", "after"}


def test_holds_and_how_they_ended():
    (one,) = rows("drain-outcomes", of_class("m10"))
    assert (one["outcome"], one["holds"], one["past_deadline"]) == ("drained", 2, 0)
    assert one["shortest_s"] >= 5
    (storm,) = rows("drain-outcomes", "abort-storm")
    assert (storm["holds"], storm["pages"], storm["outcome"]) == (280, 28_000, "drained")  # 4 a second for 70 s
    assert rows("open-grants", "abort-storm") == []


def test_held_capacity_is_rate_by_time_by_pages():
    storm = rows("held-capacity", "abort-storm")  # from 9:00:30 on; a hold lasts 10 s
    plateau = [row for row in storm if row["t"].strftime("%M:%S") in ("00:50", "01:00", "01:10", "01:20", "01:30")]
    assert len(plateau) == 5
    for row in plateau:
        assert (row["holds_per_s"], row["pages_each"]) == (4, 100)
        assert row["measured"] == pytest.approx(4_000, rel=0.05)
        assert row["expected"] == pytest.approx(row["measured"], rel=0.05)
    doubled = rows("held-capacity", "abort-storm", hold_factor="2")
    assert [row["what_if"] for row in doubled] == pytest.approx([2 * row["expected"] for row in doubled], abs=0.11)


def test_names_that_were_used_twice():
    found = rows("identity-collisions", of_class("m11"))
    assert {(row["what"], row["worker"]) for row in found} == {
        ("room", "gateway"), ("room", "prefill-0"), ("room", "decode-0"), ("transfer", "decode-0"),
    }  # fmt: skip
    assert {frozenset((row["rid"], row["other_rid"])) for row in found} == {frozenset(("one", "other"))}


def test_hits_across_identities_tell_policy_from_a_broken_key():
    found = picked(rows("cross-tenant-hits", "prefix-cross-tenant"), "rid", "giver_rid", "differs_in", "key_kept_apart")
    assert found == [
        ("other-tenant", "giver", "tenant", "yes"), ("wrong-adapter", "filler", "adapter", "no"),
        ("wrong-both", "filler", "tenant, adapter", "no"),
    ]  # fmt: skip
    keys = picked(rows("cache-key-audit", "prefix-cross-tenant"), "differs_in", "keys")
    assert keys == [("tenant", 20), ("tenant, adapter", 20)]


def test_requests_beyond_a_pool_that_were_let_in_and_ended_well():
    assert {row["rid"] for row in rows("gate-violations", of_class("m01"))} == {"first", "victim"}
    found = picked(rows("status-consistency", of_class("m01")), "rid", "worker", "there", "status")
    assert found == [("first", "prefill-0", "400", "200"), ("victim", "prefill-0", "400", "200")]


def test_a_prompt_that_was_prefilled_faster_than_it_can_be():
    found = rows("fast-prefill", of_class("m01"), floor_us_per_token="10")
    assert {rid for row in found for rid in row["fastest"] or ()} == {"first", "victim"}
    assert [row["bucket_tokens"] for row in found if row["suspicious"] == "yes"] == [512]
    assert all(row["suspicious"] == "no" for row in rows("fast-prefill", "healthy"))


def test_prefill_times_over_time_are_those_of_all_times_together():
    times, all_times = rows("prefill-times", "healthy", bucket="1h"), rows("fast-prefill", "healthy")
    assert len({row["t"] for row in times}) > 1
    for whole in all_times:
        mine = [row for row in times if row["bucket_tokens"] == whole["bucket_tokens"]]
        assert sum(row["requests"] for row in mine) == whole["requests"]
        assert min(row["p50_ms"] for row in mine) <= whole["p50_ms"] <= max(row["p50_ms"] for row in mine)
        assert sum(row["below_floor"] for row in mine) == whole["below_floor"]
    (one,) = rows("prefill-times", "healthy", bucket="30d", floor_us_per_token="1e9")[:1]
    assert one["below_floor"] == one["requests"]


def test_first_tokens_come_sooner_where_more_is_cached():
    half = {
        row["cached"]: row["p50_ms"]
        for row in rows("ttft-by-cache", "prefix-cross-tenant")
        if row["bucket_tokens"] == 256
    }
    assert half["0 none"] > half["2 more"] > half["3 nearly all"]


@pytest.mark.parametrize("sample", ["abort-race", "abort-storm"])
def test_queries_that_are_asked_together_say_what_each_says_alone(sample: str):
    names = [
        "incidents",
        "detections",
        "leaks",
        "incidents",
        "held-capacity",
        "drain-outcomes",
        "holders",
        "detections",
    ]
    by_name = {query.name: query for query in LIBRARY}
    with asking(ledger_of(sample), lambda: judged(sample), Limits()) as ask:
        for turn, name in enumerate(names):
            values = bound(by_name[name], {"after": "1m"} if name == "leaks" else {}, UTC, None)
            alone = run_query(by_name[name], ledger_of(sample), values, lambda: judged(sample), Limits())
            assert ask(by_name[name], values).equals(alone), (turn, name)


@pytest.mark.parametrize("sample", ["abort-storm", "prefix-cross-tenant"])
def test_prepared_queries_say_of_every_range_what_each_says_of_the_ledger(sample: str):
    queries = [query for query in LIBRARY if query.name in ("fast-prefill", "prefill-times")]
    prepared, ledger, random = Prepared(queries, ledger_of(sample), Limits()), ledger_of(sample), Random(sample)
    times = [t.isoformat() for t in ledger.tables["requests"]["t"].to_pylist()]
    for bucket in ("1s", "7s", "1m"):
        start, end = sorted(random.sample(sorted(set(times)), 2))
        given = {"from": start, "to": end, "bucket": bucket}
        with prepared.asking() as ask:
            for query in queries:
                values = bound(query, {k: v for k, v in given.items() if k in query.parameters}, UTC, None)
                alone = run_query(query, ledger, values, lambda: judged(sample), Limits())
                assert ask(query, values).equals(alone), given
                assert len(alone)


def test_a_prepared_query_reads_nothing_of_the_ledger_again(monkeypatch):
    (query,) = [query for query in LIBRARY if query.name == "prefill-times"]
    loaded, load = [], library.shut_database
    monkeypatch.setattr(
        library, "shut_database", lambda tables, **more: loaded.append(set(tables)) or load(tables, **more)
    )
    prepared = Prepared([query], ledger_of("abort-race"), Limits())
    for bucket in ("1s", "1m"):
        with prepared.asking() as ask:
            ask(query, bound(query, {"bucket": bucket}, UTC, None))
    assert loaded == [{"requests", "workers"}, {"asked_for"}, {"asked_for"}]


def test_a_query_whose_parts_take_values_is_not_prepared():
    with pytest.raises(QueryError, match="takes a value"):
        Prepared([query for query in LIBRARY if query.name == "detections"], ledger_of("abort-race"), Limits())


def test_damage_is_counted_by_time():
    found = rows("damage-over-time", "abort-race", bucket="1s")
    assert (
        sum(row["responses"] for row in found)
        == expected_of(next(s for s in SAMPLES if s.name == "abort-race"))["responses"]
    )
    assert [row["t"].second for row in found if row["contaminated"]] == [1]
    assert found[-1]["contaminated_so_far"] == 1


def test_coverage_says_what_is_lost_and_whose_end_is_not_known():
    found = {(row["worker"], row["epoch"]): row for row in rows("coverage", "gappy")}
    assert [key for key, row in found.items() if row["closed"] == "no"] == [("decode-1", 1)]
    assert {key[0] for key, row in found.items() if row["lost"]} == {"decode-0", "prefill-1"}
    assert all(row["gaps"] == 0 for row in rows("coverage", "healthy"))


def test_the_life_of_a_page_a_request_and_a_room_meet():
    life = rows("page-life", of_class("m03"), worker="decode-0", page="20")
    ops = [(row["op"], row["rid"]) for row in life]
    assert ops.index(("free", "donor")) < ops.index(("bind", "victim")) < ops.index(("done to here", "donor"))
    mine = rows("request-life", of_class("m03"), rid="victim")
    assert {row["worker"] for row in mine} == {"gateway", "prefill-0", "decode-0"}
    room = next(row for row in ledger_of(of_class("m03")).tables["requests"].to_pylist() if row["room"] is not None)[
        "room"
    ]
    assert {row["rid"] for row in rows("room-life", of_class("m03"), room=str(room))} == {"donor"}


def test_a_window_cuts_and_its_borders_are_told():
    first = rows("contaminated-responses", "abort-race")[0]["started"].isoformat()
    (kept,) = rows("contaminated-responses", "abort-race", from_=first)
    assert (kept["counted"], kept["edge"]) == ("yes", True)
    (left,) = rows("contaminated-responses", "abort-race", from_="2026-09-14T09:01:00Z")
    assert (left["counted"], left["edge"]) == ("before the window", False)


@pytest.mark.parametrize("sample", [s for s in SMALL if expected_of(s)["contaminated"]], ids=lambda sample: sample.name)
def test_every_contaminated_response_has_a_proof_with_one_marked_row_for_each_finding(sample: Sample):
    for one in expected_of(sample)["contaminated"]:
        proof = rows("proof", sample.name, rid=one["rid"])
        findings = {row["finding"] for row in proof}
        assert findings
        for finding in findings:
            chain = [row for row in proof if row["finding"] == finding]
            assert [row["mark"] for row in chain if row["mark"]], (one["rid"], finding)
            assert "reader" in {row["role"] for row in chain}
        assert "donor" in {row["role"] for row in proof}


@pytest.mark.parametrize(
    ("number", "op", "role"), [("m01", "bind", "reader"), ("m03", "done", "donor"), ("m04-early", "done", "donor")]
)
def test_the_row_that_offends_is_marked(number: str, op: str, role: str):
    marked = [row for row in rows("proof", of_class(number), rid="victim") if row["mark"]]
    assert {(row["op"], row["role"], row["mark"]) for row in marked} == {(op, role, ">>")}


def test_detectors_of_a_record_with_holes_accuse_nobody():
    assert rows("detections", "gappy") == []
    (lost,) = rows("incidents", "gappy")
    assert (lost["severity"], lost["cause"], lost["unknown"], lost["detections"]) == ("medium", "record lost", 5, 0)


@pytest.mark.parametrize("sample", [s for s in SMALL if s.mechanism], ids=lambda sample: sample.name)
def test_one_cause_is_one_incident(sample: Sample):
    expected = expected_of(sample)
    found = {row["cause"]: row for row in rows("incidents", sample.name)}
    incident = found[sample.mechanism]
    assert incident["contaminated"] == len(expected["contaminated"])
    assert incident["corrupt"] == len(expected["corrupt"])
    assert (incident["severity"], incident["growing"]) == ("critical" if expected["contaminated"] else "high", "yes")
    assert {one["rid"] for one in expected["contaminated"]} <= set(incident["rids"])
    assert all(row["contaminated"] == 0 for cause, row in found.items() if cause != sample.mechanism)
    again = {row["cause"]: row["id"] for row in rows("incidents", sample.name, quiet="300d")}
    assert again[sample.mechanism] == incident["id"]


def test_what_was_seen_and_nobody_read_is_low():
    found = {row["cause"]: row for row in rows("incidents", "abort-storm")}
    assert {cause: row["severity"] for cause, row in found.items()} == {"detector D8": "low", "detector D9": "low"}
    assert found["detector D8"]["rids"] == [
        row["rid"] for row in sorted(rows("leaks", "abort-storm"), key=lambda r: r["rid"])
    ]


SEEN_BY = {
    "m01": {"D1", "D2"}, "m02": {"D2"}, "m03": {"O"}, "m04-early": {"O"}, "m04-lost": {"O"}, "m05": {"O"}, "m06": {"O"}, "m07": {"O"},
    "m08": {"D8"}, "m09": {"D8"}, "m11": {"U"}, "m12": {"K"}, "m13": {"G"}, "m14": {"D2"}, "p0": {"K"},
}  # fmt: skip
"""With every defence off: what the record alone shows of each class."""


@pytest.mark.parametrize("number", SEEN_BY)
def test_the_record_shows_each_class_to_its_detectors(number: str):
    found = rows("detections", of_class(number))
    assert {row["detector"] for row in found if row["source"] == "record"} == SEEN_BY[number]
