"""Whole pages as pictures: drawn by a real browser at a fixed size over fixed ledgers, and held against stored ones.

Fonts differ from machine to machine, so that pictures are compared an eighth of their size, and a share of their points
may differ. What that still finds is shown by the last test: tables that are not there, a page without its order; whether a
chart is drawn is for `test_browser`. The stored pictures are renewed by `pytest tests/console/test_page_pictures.py --snapshot-update`.
"""

import base64
from pathlib import Path

import pytest
from browsers import ready

pytestmark = pytest.mark.browser
STORM = Path(__file__).parents[2] / "sample_logs" / "abort-storm" / "ledger"
STORED = Path(__file__).parent / "pictures"
SIZE = {"width": 1200, "height": 960}
EIGHTH = 8
MOST_DIFFERENT = 0.05
"""Share of the points of a small picture that may differ."""
LEAST_DIFFERENCE = 32
"""By which a point has to differ in one of its colours (0 to 255) to count."""

SMALL = """
async ([large, factor]) => {
    const image = new Image();
    image.src = "data:image/png;base64," + large;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = image.width / factor; canvas.height = image.height / factor;
    const context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return canvas.toDataURL("image/png").split(",")[1];
}
"""
DIFFERENT = """
async ([one, other, least]) => {
    const points = async (encoded) => {
        const image = new Image();
        image.src = "data:image/png;base64," + encoded;
        await image.decode();
        const canvas = document.createElement("canvas");
        canvas.width = image.width; canvas.height = image.height;
        const context = canvas.getContext("2d");
        context.drawImage(image, 0, 0);
        return [image.width, image.height, context.getImageData(0, 0, image.width, image.height).data];
    };
    const [width, height, a] = await points(one), [w, h, b] = await points(other);
    if (width !== w || height !== h) return 1;
    let differ = 0;
    for (let i = 0; i < a.length; i += 4)
        if ([0, 1, 2].some((c) => Math.abs(a[i + c] - b[i + c]) >= least)) differ += 1;
    return differ / (width * height);
}
"""


class Easel:
    """Takes small pictures of pages and compares them, on an empty page of its own."""

    def __init__(self, page) -> None:
        self.page = page

    def picture(self, page) -> str:
        """What is seen of a page, small; base64 of a PNG."""
        page.evaluate("() => document.fonts.ready")
        large = page.screenshot(animations="disabled", caret="hide")
        return self.page.evaluate(SMALL, [base64.b64encode(large).decode(), EIGHTH])

    def different(self, one: str, other: str) -> float:
        """The share of points that differ; 1 where the sizes do."""
        return self.page.evaluate(DIFFERENT, [one, other, LEAST_DIFFERENCE])


@pytest.fixture
def easel(watch):
    made = watch().page
    made.goto("about:blank")
    return Easel(made)


def pages_of(console, page, paths):
    """Every path once its charts are drawn."""
    page.set_viewport_size(SIZE)
    page.goto(f"{console.url}incidents?token={console.token}")
    page.locator("#incidents a").first.wait_for()
    incident = page.locator("#incidents a[id^=open]").first.get_attribute("href").lstrip("/")
    for path in paths:
        page.goto(console.url + (incident if path == "incident" else path))
        page.locator(".mode", has_text="FINISHED").wait_for()
        ready(page)
        yield path, page


@pytest.mark.parametrize(
    ("ledger", "scheme", "paths"),
    [
        ("incident", "dark", ("overview", "incidents", "incident", "pages", "events", "runs")),
        ("incident", "light", ("overview", "pages")),
        ("storm", "dark", ("held", "latency")),
    ],
)
def test_pages_look_as_they_did(ledger, scheme, paths, finished_ledger, served, watch, easel, request):
    console = served(STORM if ledger == "storm" else finished_ledger)
    renew, differ = request.config.getoption("update_snapshots"), {}
    for path, page in pages_of(console, watch(color_scheme=scheme).page, paths):
        stored, picture = STORED / f"{path}-{scheme}.png", easel.picture(page)
        if renew:
            STORED.mkdir(exist_ok=True)
            stored.write_bytes(base64.b64decode(picture))
        differ[path] = easel.different(picture, base64.b64encode(stored.read_bytes()).decode())
    assert {path: share for path, share in differ.items() if share > MOST_DIFFERENT} == {}


BREAK = """
(rules) => {
    const style = document.createElement("style");
    style.id = "broken"; style.textContent = rules;
    document.head.append(style);
}
"""


def test_a_picture_tells_when_something_is_missing(finished_ledger, served, watch, easel):
    console = served(finished_ledger)
    for path, page in pages_of(console, watch(color_scheme="dark").page, ("incidents",)):
        whole = easel.picture(page)
        assert easel.different(whole, easel.picture(page)) < MOST_DIFFERENT / 10
        for rules in ("table { display: none }", "body * { position: static; display: block; }"):
            page.evaluate(BREAK, rules)
            assert easel.different(whole, easel.picture(page)) > MOST_DIFFERENT, (path, rules)
            page.evaluate("() => document.getElementById('broken').remove()")
