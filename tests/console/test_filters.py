"""The filter language, and what it leaves of rows."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.core.filter_language import FilterError, parse_filter, with_value
from console.core.filter_rows import filter_rows
from console.core.sheet import Sheet, in_order, shown
from console.core.time_range import Span
from console.core.view import Sort, View

NOW = 1_790_000_000_000_000


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(NOW / 1e6 + seconds, UTC)


ROWS = pa.table(
    {
        "id": ["a", "b", "c", "d"],
        "severity": ["low", "critical", "high", "medium"],
        "pages": pa.array([1, 3, None, 20], pa.int64()),
        "share": [0.5, 1.0, 0.25, 2.0],
        "rids": pa.array([["r1", "R2"], [], None, ["q_1"]], pa.list_(pa.string())),
        "first": pa.array([at(-600), at(-60), None, at(0)], pa.timestamp("us", tz="UTC")),
        "last": pa.array([at(-500), at(-1), None, at(0)], pa.timestamp("us", tz="UTC")),
        "derived": [True, False, False, None],
        "what": pa.array(["Late write", "50% done", None, "a_b"]).dictionary_encode(),
    }
)


def kept(text: str) -> str:
    return "".join(filter_rows(parse_filter(text), ROWS, NOW).rows["id"].to_pylist())


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("", "abcd"), ("id:b", "b"), ("ID:B", "b"), ("id:a,c", "ac"), ("-id:a,c", "bd"), ("id:*", "abcd"),
        ("severity:critical", "b"), ("sev:P1", "b"), ("sev<=P2", "bc"), ("severity>high", "ad"), ("-severity<=medium", "a"),
        ("pages>=3", "bd"), ("pages:3", "b"), ("pages<3", "a"), ("-pages>=3", "ac"), ("share>0.5", "bd"), ("pages>2.5", "bd"),
        ("rids:r2", "a"), ("rids:r*", "a"), ("-rids:r1", "bcd"), ("rids:q_1", "d"), ("rids:q*1", "d"), ("rids:qx1", ""),
        ("first>-5m", "bd"), ("first<now-5m", "a"), ("first>=2026-09-21T14:13:20Z", "d"), ("derived:yes", "a"), ("derived:no", "bc"),
        ("what:*%*", "b"), ("what:a_b", "d"), ("what:a?b", ""), ("late", "a"), ("-late", "bcd"), ('"te wr"', "a"), ("R2", "a"),
        ("write -pages>=3", "a"), ("-id:a -id:b pages>=3", "d"),
    ],
)  # fmt: skip
def test_a_filter_leaves_the_rows_it_says(text, left):
    assert kept(text) == left


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("id:a -", 5, "minus stands alone"), ("id:", 2, "id: has no value"), ("x pages>=", 8, "pages>= has no value"),
        ('id:"a b', 3, "quote is not closed"), ('id:a"b"', 4, "middle of a word"), ("pages>=many", 0, "needs a number or a time"),
        ("  sev<=P9", 2, "needs one of critical"), ("id:,", 3, "value is empty"), ("pagse:3", 0, "did you mean pages"),
        ("x -zzz:1", 3, "there is no field zzz"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_where(text, place, words):
    with pytest.raises(FilterError, match=words) as caught:
        parse_filter(text, ROWS.column_names)
    assert caught.value.at == place


@pytest.mark.parametrize("text", ["id>3", "first:2026-09-21", "pages:x", "first>2026-99-99"])
def test_what_does_not_fit_the_column_says_so(text):
    with pytest.raises(FilterError):
        kept(text)


@settings(deadline=None, derandomize=True)
@given(st.text(max_size=20))
def test_any_text_is_read_or_refused_with_a_place_inside_it(text):
    try:
        terms = parse_filter(text).terms
    except FilterError as error:
        assert 0 <= error.at < len(text)
    else:
        assert all(text[term.at :].startswith(term.text) for term in terms)


@settings(deadline=None, derandomize=True)
@given(st.sampled_from(["id:b", "sev<=P2", "pages>=3", "rids:r*", "first>-5m", "derived:yes", "late", "what:a*"]))
def test_a_term_and_its_opposite_part_the_rows(text):
    assert sorted(kept(text) + kept(f"-{text}")) == list("abcd")


def test_a_term_without_its_column_is_handed_back_and_hides_nothing():
    left = filter_rows(parse_filter("tenant:x pages>=3"), ROWS, NOW)
    assert ([term.text for term in left.unused], left.hidden, len(left.rows)) == (["tenant:x"], 2, 2)


def test_order_is_stable_and_what_is_not_there_stands_last():
    def ids(text: str) -> str:
        return "".join(in_order(ROWS, Sort.parse(text))["id"].to_pylist())

    assert ids("severity") == "bcda"
    assert ids("-severity") == "adcb"
    assert (ids("pages"), ids("-pages")) == ("abdc", "dbac")
    assert (ids("derived"), ids("rids"), ids("nothing")) == ("bcad", "bdac", "abcd")


def test_a_sheet_says_what_it_does_not_show():
    sheet = Sheet("incidents", ROWS, {}, begins="first", ends="last")
    seen = shown(sheet, View(filter="-id:b tenant:x", sort=Sort("pages", True)), Span(NOW - 300_000_000, NOW), NOW)
    assert seen.rows["id"].to_pylist() == ["c"]
    assert seen.words == "1 of 4, 1 hidden, 2 outside the range, here without tenant:x"
    part = shown(Sheet("latest", ROWS, left_out=96), View(), Span(), NOW)
    assert part.words == "4 of 100, 96 not looked at"
    still = shown(sheet, View(), Span(NOW - 550_000_000, NOW - 549_000_000), NOW)
    assert still.rows["id"].to_pylist() == ["a", "c"]


def test_a_tenant_is_itself_alone_and_beside_what_was_asked_already():
    names = pa.list_(pa.string())
    rows = pa.table(
        {
            "id": ["reads", "gives", "named so", "other"],
            "reader_tenants": pa.array([["acme"], ["brio"], ["brio"], ["acme-7"]], names),
            "donor_tenants_named": pa.array([[], ["acme"], ["cyan"], None], names),
            "rids": pa.array([["r1"], ["r2"], ["acme"], ["acme-8"]], names),
        }
    )

    def ids(text: str) -> list[str]:
        left = filter_rows(parse_filter(text), rows, NOW)
        assert left.unused == ()
        return left.rows["id"].to_pylist()

    assert ids(with_value("", "tenant", "acme")) == ["reads", "gives"]
    assert ids(with_value("-id:gives", "tenant", "ACME")) == ["reads"]
    assert ids("-tenant:acme") == ["named so", "other"]
    assert with_value("id:a tenant:brio -tenant:cyan", "tenant", "t x") == 'id:a -tenant:cyan tenant:"t x"'
    assert with_value(with_value("w", "tenant", "a,b"), "tenant", "a,b") == 'w tenant:"a,b"'
    with pytest.raises(FilterError):
        with_value("", "tenant", 'a"b')
