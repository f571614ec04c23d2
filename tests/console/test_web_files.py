"""Whatever table or chart a page shows, the page offers it as a file; found by walking the pages, by no list."""

import csv
import io
import re
from collections import deque
from html.parser import HTMLParser

import httpx
import pyarrow.parquet as pq

from console.core.run_start import RunSetting
from console.core.source import LedgerSource
from console.web.app import create_app
from console.web.gate import Gate, Role

NOW = 1_790_000_060_000_000
TOKEN = "a-token-for-tests-only"


class Page(HTMLParser):
    """Tables (rows, links in the caption), drawings, what has buttons for images, and where links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[tuple[list[int], list[str]]] = []
        self.drawings: set[str] = set()
        self.images: set[tuple[str, str]] = set()
        self.links: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag in ("table", "caption", "tbody"):
            self._inside.append(tag)
        if tag == "table":
            self.tables.append(([0], []))
        elif tag == "tr" and "tbody" in self._inside:
            self.tables[-1][0][0] += 1
        elif tag == "a" and "href" in given:
            (self.tables[-1][1] if "caption" in self._inside else self.links).append(given["href"])
        if (tag == "div" and "chart" in given.get("class", "").split()) or (
            tag == "svg" and "aria-hidden" not in given
        ):
            self.drawings.add(given["id"])
        if "data-image" in given:
            self.images.add((given["data-chart"], given["data-image"]))

    def handle_endtag(self, tag):
        if self._inside and tag == self._inside[-1]:
            self._inside.pop()


async def test_every_table_and_every_chart_of_every_page_can_be_taken_away(
    finished_ledger, tmp_path, run_state, capsys
):
    source = LedgerSource(finished_ledger, now_us=lambda: NOW, engine="replay")
    gate = Gate({TOKEN: Role.FORENSIC})
    app = create_app(source, gate, ("127.0.0.1",), tmp_path, patience_s=60.0, runs=RunSetting(run_state))
    headers = {"authorization": f"Bearer {TOKEN}"}
    to_see, seen, kinds, names = deque(["/overview"]), set(), set(), set()
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://127.0.0.1", headers=headers
    ) as client:
        while to_see:
            address = to_see.popleft()
            # One page of each kind: the same screen with another order or another row selected holds the same tables.
            kind = re.sub(r"I-\w+|=[^&]*", "", address)
            if kind in seen or "sort" in kind or not address.startswith("/") or address.startswith("/tables/"):
                continue
            seen.add(kind)
            page = Page((await client.get(address)).text)
            to_see.extend(page.links)
            for chart in page.drawings:
                assert {(chart, "png"), (chart, "svg")} <= page.images, (address, chart)
                kinds.add(chart)
            for (rows,), files in page.tables:
                ends = [re.search(r"/tables/(\w+)\.(csv|parquet)\?", link) for link in files]
                assert {end[2] for end in ends if end} == {"csv", "parquet"}, (address, files)
                for link, end in zip(files, ends, strict=True):
                    answer = await client.get(link)
                    assert answer.status_code == 200, (link, answer.text)
                    if end[2] == "csv":
                        held = len(list(csv.DictReader(io.StringIO(answer.text))))
                    else:
                        held = len(pq.read_table(io.BytesIO(answer.content)))
                    assert rows == held or (rows < held and rows in (12, 100, 200)), (address, link, rows, held)
                    names.add(end[1])
    assert {"responses", "lineage", "order", "runs", "runbooks", "holders", "flows"} <= names
    assert "lineage" in kinds
    capsys.readouterr()
