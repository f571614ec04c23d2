"""Findings by hand: every kind and mechanism, delivery, first step, exposure, taint and the shape of the rows."""

from __future__ import annotations

from typing import Any

import pytest
from evidence_builder import DECODE, INF, PREFILL, EvidenceBuilder

from forensics import replay
from forensics.verdict import FINDING_COLUMNS

TAG, OLD, STRAY, SOURCE = 20, 11, 66, 500


class Incident:
    """ann reads page 7 of decode under TAG (reserved at 30, bound at 50), through runs (50, 60] and (60, 70].

    Before, bob wrote the page under OLD (at seq 5); he freed it at 25.
    """

    def __init__(self, **life: Any) -> None:
        self.built = built = EvidenceBuilder()
        self.ann, self.bob = built.request("ann"), built.request("bob")
        self.ann_there, self.bob_there = built.request("ann", PREFILL), built.request("bob", PREFILL)
        self.page, self.source = built.cell(7), built.cell(3, PREFILL)
        built.life(OLD, self.page, self.bob, 2, 25)
        built.life(TAG, self.page, self.ann, 30, **({"end": 90} | life))
        built.life(SOURCE, self.source, self.ann_there, 10, 100)
        built.write(self.page, self.bob, OLD, 5)
        built.runs(self.ann, (50, 60), (60, 70))

    def landing(self, lo: int, hi: int, *at_source: tuple[int, int, int], tag: int = TAG, **columns: Any) -> int:
        """A landing read from the source page in (40, 42]; writes there are (rq, tag, hi)."""
        for rq, written_under, at in at_source:
            self.built.write(self.source, rq, written_under, at)
        window = columns.pop("window", (40, 42))
        src_tag = columns.pop("src_tag", SOURCE)
        return self.built.landing(self.page, tag, lo, hi, self.source, src_tag, window, **columns)

    def own(self, lo: int = 44, hi: int = 45) -> int:
        return self.landing(lo, hi, (self.ann_there, SOURCE, 20))

    def findings(self, **read: Any) -> list[dict[str, Any]]:
        self.built.read(self.page, self.ann, TAG, 50, **read)
        return replay.run(self.built.build()).to_pylist()

    def finding(self, **read: Any) -> dict[str, Any]:
        (row,) = self.findings(**read)
        return row


def words(row: dict[str, Any]) -> tuple[str, str, str, str]:
    return row["kind"], row["proof"], row["mechanism"], row["reason"]


# --- kinds -------------------------------------------------------------------------------------------------------


def test_own_content_is_clean() -> None:
    incident = Incident()
    incident.own()
    row = incident.finding()
    assert words(row) == ("clean", "proved", "", "")
    assert row["pages"] == 1
    assert row["page_list"] == [7]
    nothing = ("donor_rid", "donor_tenant", "first_step", "first_step_last", "first_step_proof", "first_seq")
    assert all(row[name] is None for name in nothing)
    assert (row["rid"], row["worker"], row["epoch"], row["req"], row["pool"]) == ("ann", *DECODE, 1, "kv")


def test_the_incident_short_handoff_reads_anothers_page() -> None:
    row = Incident(granted=True).finding()
    assert words(row) == ("foreign", "proved", "M1", "")
    assert (row["donor_rid"], row["donor_tenant"], row["delivered"], row["derived"]) == ("bob", "t-bob", "yes", False)
    assert (row["first_step"], row["first_step_last"], row["first_step_proof"]) == (60, 60, "proved")
    assert row["first_seq"] == 50


def test_never_written_is_corrupt_without_a_donor() -> None:
    incident = Incident(granted=True)
    incident.built.event(incident.page, "scrub", 26, 27)
    row = incident.finding()
    assert words(row) == ("corrupt", "proved", "M1", "")
    assert (row["donor_rid"], row["delivered"]) == (None, "")
    assert row["first_step"] == 60


def test_own_earlier_attempt_is_corrupt() -> None:
    incident = Incident(granted=True)
    incident.built.write(incident.page, incident.ann, 15, 27)
    assert words(incident.finding()) == ("corrupt", "proved", "M1", "")


def test_a_ghost_after_the_landing_leaves_it_unknown() -> None:
    incident = Incident()
    incident.own()
    incident.built.ghost(incident.page, 46, 48, "missing rows in pages")
    row = incident.finding()
    assert words(row) == ("unknown", "inferred", "", "missing rows in pages")
    assert row["first_step"] is None


def test_a_ghost_before_the_landing_changes_nothing() -> None:
    incident = Incident()
    incident.own()
    incident.built.ghost(incident.page, 30, 40)
    assert words(incident.finding()) == ("clean", "proved", "", "")


@pytest.mark.parametrize(
    ("t_lo", "expected"),
    [(600, ("foreign", "inferred", "M6", "")), (599, ("unknown", "inferred", "", "undecided order"))],
)
def test_what_a_whole_run_read_before_its_own_landing_by_the_clock(t_lo: int, expected: tuple[str, ...]) -> None:
    incident = Incident(granted=True)  # what was left there is another's; the first run is over at 599
    incident.landing(44, 75, (incident.ann_there, SOURCE, 20), t_lo=t_lo, t_hi=t_lo + 5)
    assert words(incident.finding()) == expected


def test_order_that_only_clocks_decide_is_inferred() -> None:
    incident = Incident()
    incident.landing(44, 65, (incident.ann_there, SOURCE, 20), t_lo=440, t_hi=450)
    assert words(incident.finding()) == ("clean", "inferred", "", "")
    incident = Incident()
    incident.landing(44, 65, (incident.ann_there, SOURCE, 20), t_lo=440, t_hi=550)
    assert words(incident.finding()) == ("unknown", "inferred", "", "undecided order")


def test_foreign_inferred_by_clock() -> None:
    incident = Incident()
    incident.own(44, 52)
    incident.landing(45, 65, (incident.bob_there, 499, 22), tag=STRAY, t_lo=590, t_hi=595, src_tag=499, window=(30, 32))
    incident.built.rows["events"][-3]["t_lo"], incident.built.rows["events"][-3]["t_hi"] = 440, 450
    row = incident.finding()
    assert words(row)[:2] == ("foreign", "inferred")
    assert row["first_step_proof"] == "inferred"


def test_a_late_landing_is_foreign_although_own_content_was_read_before_it() -> None:
    incident = Incident()
    incident.own()
    stray(incident, 57, 59)
    row = incident.finding()
    assert words(row) == ("foreign", "proved", "M13", "")
    assert (row["first_step"], row["first_step_last"], row["first_seq"]) == (60, 70, 59)


def test_two_certain_foreign_events_give_two_findings() -> None:
    incident = Incident(granted=True)
    carl = incident.built.request("carl")
    incident.built.write(incident.page, carl, 67, 62, lo=61)
    incident.built.runs(incident.ann, (70, 80))
    assert [(row["donor_rid"], row["mechanism"], row["first_step"]) for row in incident.findings()] == [
        ("bob", "M1", 60),
        ("carl", "M13", 70),
    ]


def test_own_rows_lost_gives_one_unknown_finding() -> None:
    incident = Incident(granted=True)
    incident.own()
    other = incident.built.cell(9)
    incident.built.read(other, incident.ann, TAG, 50)
    incident.built.rows["requests"][incident.ann]["rows_complete"] = False
    row = incident.finding()
    assert words(row) == ("unknown", "proved", "", "own rows lost")
    assert row["page_list"] == [7, 9]


def test_a_request_whose_receive_is_lost_is_listed_by_its_place() -> None:
    incident = Incident()
    incident.built.rows["requests"][incident.ann] |= {"owner": -1, "rid": None, "tenant": None}
    row = incident.finding()
    assert (row["rid"], row["kind"], row["reason"]) == ("?decode-0/1/1", "unknown", "own rows lost")


# --- mechanisms --------------------------------------------------------------------------------------------------


def test_m2_a_failed_transfer_was_committed() -> None:
    assert words(Incident(granted=True, failed=True).finding())[2] == "M2"


def test_content_from_before_the_reserve_without_a_grant() -> None:
    assert words(Incident().finding())[2] == "mechanism unknown"


@pytest.mark.parametrize(("held", "mechanism"), [(False, "M3"), (True, "M4")])
def test_m3_and_m4_a_late_write_of_an_earlier_life(held: bool, mechanism: str) -> None:
    incident = Incident()
    incident.built.rows["tags"][0]["held"] = held
    incident.landing(45, 46, (incident.bob_there, SOURCE, 20), tag=OLD)
    row = incident.finding()
    assert words(row) == ("foreign", "proved", mechanism, "")
    assert row["donor_rid"] == "bob"


def test_m3_where_only_a_clock_puts_it_after_the_reserve() -> None:
    incident = Incident()
    incident.landing(10, 66, (incident.bob_there, SOURCE, 20), tag=OLD, t_lo=300, t_hi=460)
    assert words(incident.finding()) == ("foreign", "inferred", "M3", "")


@pytest.mark.parametrize(("lo", "mechanism"), [(30, "M13"), (29, "M1")])
def test_a_landing_counts_from_the_reserve_on(lo: int, mechanism: str) -> None:
    incident = Incident(granted=True)
    incident.landing(lo, 46, (incident.bob_there, SOURCE, 20), tag=STRAY)
    assert words(incident.finding()) == ("foreign", "proved", mechanism, "")


@pytest.mark.parametrize(("reserve", "mechanism"), [(65, "M3"), (66, "M1")])
def test_in_mode_c_a_landing_counts_unless_it_ended_by_the_reserve(reserve: int, mechanism: str) -> None:
    incident = Incident(granted=True)
    incident.built.rows["tags"][1]["reserve_seq"] = reserve
    incident.landing(10, 66, (incident.bob_there, SOURCE, 20), tag=OLD, t_lo=300, t_hi=460)
    assert words(incident.finding()) == ("foreign", "inferred", mechanism, "")


def test_in_mode_c_a_write_counts_only_from_the_reserve_on() -> None:
    incident = Incident(granted=True)
    incident.built.write(incident.page, incident.bob, 70, 66, lo=10, t_lo=300, t_hi=460)
    assert words(incident.finding()) == ("foreign", "inferred", "M1", "")


def test_m5_the_source_was_released_and_rewritten_before_it_was_read() -> None:
    incident = Incident(granted=True)
    incident.built.rows["tags"][2]["end_seq"] = 37
    incident.landing(44, 45, (incident.ann_there, SOURCE, 20), (incident.bob_there, 510, 38))
    assert words(incident.finding()) == ("foreign", "proved", "M5", "")


def test_m5_where_one_of_several_possible_sources_came_after_the_release() -> None:
    incident = Incident(granted=True)
    incident.built.rows["tags"][2]["end_seq"] = 37
    incident.built.write(incident.source, incident.bob_there, 499, 41, lo=8)
    incident.landing(44, 45, (incident.bob_there, 510, 38))
    assert words(incident.finding()) == ("foreign", "proved", "M5", "")


def test_m6_the_source_was_read_before_it_was_computed() -> None:
    incident = Incident(granted=True)
    incident.landing(44, 45, (incident.bob_there, 499, 8), (incident.ann_there, SOURCE, 60))
    assert words(incident.finding()) == ("foreign", "proved", "M6", "")


def test_m1_the_transfer_itself_brought_anothers_content() -> None:
    incident = Incident(granted=True)
    incident.landing(44, 45, (incident.bob_there, 499, 8))
    assert words(incident.finding()) == ("foreign", "proved", "M1", "")


def test_m7_freed_while_it_was_read() -> None:
    incident = Incident(end=55)
    incident.own()
    incident.built.life(70, incident.page, incident.bob, 57)
    incident.built.write(incident.page, incident.bob, 70, 58)
    assert words(incident.finding()) == ("foreign", "proved", "M7", "")


def test_m8_given_to_another_while_its_life_lasted() -> None:
    incident = Incident(end=57, ended="reserved")
    incident.own()
    incident.built.life(70, incident.page, incident.bob, 57)
    incident.built.write(incident.page, incident.bob, 70, 58)
    assert words(incident.finding()) == ("foreign", "proved", "M8", "")


def test_m12_shared_with_a_request_of_another_tenant_and_meaning() -> None:
    incident = Incident()
    incident.built.rows["tags"][0]["end_seq"] = INF
    incident.built.share(incident.ann, incident.page, OLD, 45, "both")
    incident.built.read(incident.page, incident.ann, OLD, 50)
    (row,) = replay.run(incident.built.build()).to_pylist()
    assert (*words(row), row["donor_rid"]) == ("foreign", "proved", "M12", "", "bob")


def test_m13_a_landing_under_a_tag_the_page_never_had() -> None:
    incident = Incident()
    incident.landing(45, 46, (incident.bob_there, SOURCE, 20), tag=STRAY)
    assert words(incident.finding()) == ("foreign", "proved", "M13", "")


# --- shares ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("identity", "kind"), [("same", "clean"), ("tenant", "exposed"), ("meaning", "corrupt")])
def test_shared_content(identity: str, kind: str) -> None:
    incident = Incident()
    incident.built.rows["tags"][0]["end_seq"] = INF
    incident.built.share(incident.ann, incident.page, OLD, 45, identity)
    incident.built.read(incident.page, incident.ann, OLD, 50)
    (row,) = replay.run(incident.built.build()).to_pylist()
    assert (row["kind"], row["proof"], row["delivered"], row["donor_rid"]) == (kind, "proved", "", None)
    assert (row["first_step"] is None) == (kind == "clean")


def test_shared_content_that_is_not_certain_is_not_cleared() -> None:
    incident = Incident()
    incident.built.rows["tags"][0]["end_seq"] = INF
    incident.built.share(incident.ann, incident.page, OLD, 45, "tenant")
    incident.built.write(incident.page, incident.bob, OLD, 80, lo=3)
    incident.built.read(incident.page, incident.ann, OLD, 50)
    (row,) = replay.run(incident.built.build()).to_pylist()
    assert words(row) == ("unknown", "inferred", "", "undecided order")


# --- delivery ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_row", "delivered"),
    [
        ({"last_token": 502}, "yes"),
        ({"last_token": 501}, "no"),  # it left as the run began: of the pass before it
        ({"last_token": None}, "no"),
        ({"last_token": None, "ended_seq": None}, "yes"),
        ({"last_token": None, "ended_seq": None, "end_certain": False}, "unknown"),
    ],
)
def test_delivered_by_decode(request_row: dict[str, Any], delivered: str) -> None:
    incident = Incident(granted=True)
    incident.built.rows["requests"][incident.ann] |= request_row
    assert incident.finding()["delivered"] == delivered  # the first run began at time 501


@pytest.mark.parametrize(("last_token", "delivered"), [(501, "no"), (502, "unknown"), (601, "unknown"), (602, "yes")])
def test_delivered_between_the_first_possible_and_the_first_certain_pass(last_token: int, delivered: str) -> None:
    incident = Incident()
    incident.built.write(incident.page, incident.bob, STRAY, 59, lo=57)  # runs begin at times 501 and 601
    incident.built.rows["requests"][incident.ann]["last_token"] = last_token
    rows = [row for row in incident.findings() if row["mechanism"] == "M13"]
    assert [row["delivered"] for row in rows] == [delivered]


@pytest.mark.parametrize(
    ("here", "there", "delivered"),
    [
        ({"output_tokens": 0}, {"output_tokens": 1}, "yes"),
        ({"output_tokens": 0}, {"output_tokens": 0}, "no"),
        ({"output_tokens": 0}, {"output_tokens": None}, "unknown"),
        ({"output_tokens": 0}, {"output_tokens": None, "ended_seq": None}, "unknown"),
    ],
)
def test_delivered_by_the_rid_of_a_prefill_read(here: dict[str, Any], there: dict[str, Any], delivered: str) -> None:
    incident = Incident()
    built = incident.built
    built.rows["requests"][incident.ann_there] |= here
    built.rows["requests"][incident.ann] |= there
    built.write(incident.source, incident.bob_there, 499, 8)
    built.runs(incident.ann_there, (20, 30), kind="prefill")
    built.read(incident.source, incident.ann_there, SOURCE, 20)
    (row,) = replay.run(built.build()).to_pylist()
    assert (row["kind"], row["delivered"]) == ("foreign", delivered)


def test_first_step_without_a_certain_pass_is_the_whole_run() -> None:
    incident = Incident()
    incident.built.rows["passes"] = []
    incident.built.runs(incident.ann, (50, 70), step=100, n=20)
    incident.built.write(incident.page, incident.bob, STRAY, 59, lo=57, t_lo=575, t_hi=580)
    row = next(row for row in incident.findings() if row["mechanism"] == "M13")
    assert (row["first_step"], row["first_step_last"], row["proof"]) == (100, 119, "inferred")


# --- exposure ----------------------------------------------------------------------------------------------------


def stray(incident: Incident, lo: int, hi: int) -> None:
    other = incident.built.cell(4, PREFILL)
    incident.built.write(other, incident.bob_there, 499, 22)
    incident.built.landing(incident.page, STRAY, lo, hi, other, 499, (40, 42))


@pytest.mark.parametrize(
    ("lo", "hi", "kind"), [(31, 32, "exposed"), (29, 31, "clean"), (80, 90, "exposed"), (80, 91, "clean")]
)
def test_anothers_bytes_in_the_life_without_being_read(lo: int, hi: int, kind: str) -> None:
    incident = Incident()
    incident.own()
    stray(incident, lo, hi)
    row = incident.finding()
    assert row["kind"] == kind
    if kind == "exposed":
        assert (row["mechanism"], row["donor_rid"], row["proof"], row["first_step"]) == ("M13", "bob", "proved", None)


def test_exposure_gives_way_to_what_is_graver() -> None:
    incident = Incident()
    incident.own()
    stray(incident, 31, 32)
    incident.built.ghost(incident.page, 46, 48, "rows lost")
    assert [row["kind"] for row in incident.findings()] == ["unknown"]


def test_source_released_while_it_was_read() -> None:
    incident = Incident()
    incident.own()
    incident.built.rows["tags"][2]["end_seq"] = 41
    row = incident.finding()
    assert words(row) == ("exposed", "proved", "M5", "source released while it was read")
    assert row["donor_rid"] is None


# --- taint -------------------------------------------------------------------------------------------------------


def tainted(identity: str = "same", hi: int = 65) -> EvidenceBuilder:
    """ann reads bob's page, then writes page 8, which carl and dora share; a transfer of dora's carries it on."""
    incident = Incident(granted=True)
    built = incident.built
    built.read(incident.page, incident.ann, TAG, 50)
    carl, dora, dora_far = built.request("carl"), built.request("dora"), built.request("dora", ("decode-1", 1))
    page, far = built.cell(8), built.cell(0, ("decode-1", 1))
    built.life(TAG, page, incident.ann, 30)
    built.write(page, incident.ann, TAG, hi)
    for rq in (carl, dora):
        built.share(rq, page, TAG, 70, identity)
        built.runs(rq, (75, 80))
    built.read(page, carl, TAG, 72)
    built.life(900, far, dora_far, 5)
    built.landing(far, 900, 6, 8, page, TAG, (73, 74))
    built.runs(dora_far, (10, 20))
    built.read(far, dora_far, 900, 9)
    return built


def derived(built: EvidenceBuilder) -> list[tuple[Any, ...]]:
    rows = replay.run(built.build()).to_pylist()
    return [(row["rid"], row["kind"], row["mechanism"], row["donor_rid"]) for row in rows if row["derived"]]


@pytest.mark.parametrize("identity", ["same", "tenant"])
def test_what_a_contaminated_request_wrote_afterwards_contaminates_its_readers(identity: str) -> None:
    assert derived(tainted(identity)) == [("carl", "foreign", "M1", "bob"), ("dora", "foreign", "M1", "bob")]


def test_what_it_wrote_before_does_not() -> None:
    assert derived(tainted(hi=50)) == []


def test_taint_goes_on_from_reader_to_reader() -> None:
    built = tainted()
    carl = next(r["rq"] for r in built.rows["requests"] if r["rid"] == "carl")
    eve = built.request("eve")
    page = built.cell(9)
    built.life(800, page, carl, 60)
    built.write(page, carl, 800, 85)
    built.share(eve, page, 800, 86, "same")
    built.runs(eve, (90, 95))
    built.read(page, eve, 800, 88)
    assert derived(built) == [(rid, "foreign", "M1", "bob") for rid in ("carl", "dora", "eve")]


def test_a_request_is_not_tainted_by_itself() -> None:
    incident = Incident(granted=True)
    later = incident.built.cell(8)
    incident.built.life(TAG, later, incident.ann, 30)
    incident.built.write(later, incident.ann, TAG, 55)
    incident.built.read(later, incident.ann, TAG, 56)
    assert [(row["kind"], row["page_list"], row["derived"]) for row in incident.findings()] == [
        ("clean", [8], False),
        ("foreign", [7], False),
    ]


# --- rows --------------------------------------------------------------------------------------------------------


def test_pages_of_one_group_stand_in_one_row_and_cells_of_one_page_count_once() -> None:
    incident = Incident(granted=True)
    built = incident.built
    for page, tok_lo in ((12, 0), (10, 0), (10, 32)):
        cell = built.cell(page, tok_lo=tok_lo)
        built.life(TAG, cell, incident.ann, 30, granted=True)
        built.write(cell, incident.bob, OLD, 5 + page)
        built.read(cell, incident.ann, TAG, 50 if page == 12 else 60)
    row = incident.finding()
    assert (row["pages"], row["page_list"]) == (3, [7, 10, 12])
    assert (row["first_step"], row["first_step_last"], row["first_seq"]) == (60, 60, 50)


def test_only_the_gravest_kind_of_a_page_is_kept() -> None:
    incident = Incident(granted=True)
    built = incident.built
    upper = built.cell(7, tok_lo=64, tok_hi=128)
    built.write(upper, incident.ann, TAG, 45)
    built.read(upper, incident.ann, TAG, 50)
    assert [row["kind"] for row in incident.findings()] == ["foreign"]


def test_pools_are_told_apart() -> None:
    incident = Incident(granted=True)
    index = incident.built.cell(7, pool="index")
    incident.built.write(index, incident.ann, TAG, 45)
    incident.built.read(index, incident.ann, TAG, 50)
    assert [(row["pool"], row["kind"]) for row in incident.findings()] == [("index", "clean"), ("kv", "foreign")]


def test_several_donors_at_one_source_are_a_question_mark() -> None:
    incident = Incident(granted=True)
    carl = incident.built.request("carl", PREFILL)
    incident.landing(44, 45, (incident.bob_there, 499, 8), (carl, 501, 42))
    row = incident.finding()
    assert (row["kind"], row["donor_rid"], row["donor_tenant"]) == ("foreign", "?", None)


def test_columns() -> None:
    incident = Incident()
    incident.built.read(incident.page, incident.ann, TAG, 50)
    assert replay.run(incident.built.build()).schema.equals(FINDING_COLUMNS)
