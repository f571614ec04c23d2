"""The web console in a real browser: served by the real command, no word to any other host, news in place."""

import itertools
import re
import signal
import socket
import time
from pathlib import Path

import pytest
from browsers import DEADLINE_MS, ready
from scripted_ledger import ACME, CYAN, ordinary, short_handoff

pytestmark = pytest.mark.browser


def test_from_the_printed_link_to_the_page_that_was_read(finished_ledger, served, watch):
    console, watched = served(finished_ledger), watch()
    page = watched.page
    page.goto(f"{console.url}?token={console.token}")
    assert console.token not in page.url
    page.locator("#incidents tbody tr").nth(1).wait_for()
    page.get_by_role("row", name="M3 late write").get_by_role("link").click()
    page.wait_for_selector("#lineage")
    assert page.locator("#lineage g.page").count() == 4
    offending = page.locator("#offending")
    assert "LANDS" in offending.inner_text()
    assert offending.is_visible()
    page.locator("#lineage a").nth(2).click()
    page.wait_for_url("**page=32**")
    assert "page 32" in page.locator("#h-events").inner_text()
    page.get_by_text("Page map around this incident").click()
    ready(page)
    watched.check(console.url)


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_the_map_is_drawn_zooms_and_has_a_twin(finished_ledger, served, watch, scheme):
    console, watched = served(finished_ledger), watch(color_scheme=scheme)
    page = watched.page
    page.goto(f"{console.url}pages?token={console.token}")
    page.wait_for_selector("#chart-pages[data-ready]")
    drawn = page.evaluate("() => document.getElementById('chart-pages').data.map((trace) => [trace.type, trace.name])")
    assert drawn == [
        ["heatmap", "owner"],
        ["scatter", "owner letters"],
        ["scatter", "foreign read"],
        ["scatter", "late write"],
    ]
    assert page.locator("#chart-pages .heatmaplayer image").count() == 1
    assert page.locator("#chart-pages .scatterlayer .points path").count() >= 20
    with page.expect_response(lambda answer: "charts/pages" in answer.url and "rows=29-34" in answer.url) as zoomed:
        page.evaluate("() => Plotly.relayout('chart-pages', {'yaxis.range[0]': 34, 'yaxis.range[1]': 29})")
    assert zoomed.value.json()["data"][0]["z"]["shape"] == "6, 600"
    assert "rows=29-34" in page.url
    page.get_by_text("The same as tables").click()
    assert "8 of 8" in page.locator("#marks caption").inner_text()
    page.go_back()
    page.locator("#marks caption", has_text="20 of 20").wait_for()
    watched.check(console.url)


def test_dragging_over_any_chart_sets_the_range_of_the_whole_page(finished_ledger, served, watch):
    console, watched = served(finished_ledger), watch()
    page = watched.page
    page.goto(f"{console.url}incidents?token={console.token}")
    page.locator("#incidents tbody tr").nth(1).wait_for()
    ready(page)
    box = page.locator("#chart-swimlanes .nsewdrag").first.bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 2, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, y + 2, steps=5)
    page.mouse.up()
    page.wait_for_url("**from=2026-09-21T14:13:20**to=2026-09-21T14:13:20.6**")
    page.locator("#incidents tbody tr").nth(1).wait_for(state="detached")
    assert "M1 short handoff" in page.locator("#incidents tbody").inner_text()
    assert page.get_by_role("textbox", name="Time").input_value().startswith("2026-09-21T14:13:20")
    page.get_by_role("link", name="Events").click()
    page.wait_for_url("**/events?from=2026-09-21T14:13:20**")
    page.keyboard.press("z")
    page.wait_for_url(re.compile(r"/events\?mode=paused$"))
    page.locator("#events caption", has_text=" of 207").wait_for()
    watched.check(console.url)


@pytest.mark.parametrize(("kind", "begins"), [("png", b"\x89PNG"), ("svg", b"<svg")])
def test_every_chart_is_an_image_to_take_away(finished_ledger, served, watch, kind, begins):
    console, watched = served(finished_ledger), watch()
    page = watched.page
    page.goto(f"{console.url}?token={console.token}")
    page.locator("#incidents a").first.wait_for()
    incident = page.locator("#incidents a[id^=open]").first.get_attribute("href")
    for path in ("overview", incident.lstrip("/"), "pages", "latency"):
        page.goto(console.url + path)
        ready(page)
        for button in page.locator(f"[data-image={kind}]").all():
            with page.expect_download() as taken:
                button.click()
            content = Path(taken.value.path()).read_bytes()
            assert content.startswith(begins), path
            assert len(content) > 2000
    page.goto(console.url + incident.lstrip("/"))
    colours = "() => getComputedStyle(document.querySelector('#lineage path.link')).stroke"
    with page.expect_download() as taken:
        page.locator(f"[data-image={kind}][data-chart=lineage]").click()
    assert kind == "png" or page.evaluate(colours) in Path(taken.value.path()).read_text()
    watched.check(console.url)


def test_a_keyboard_is_enough(finished_ledger, served, watch):
    console, watched = served(finished_ledger), watch()
    page = watched.page
    page.goto(f"{console.url}?token={console.token}")
    page.locator("#incidents a").first.wait_for()
    for key, path in (
        ("2", "incidents"),
        ("3", "pages"),
        ("4", "held"),
        ("5", "latency"),
        ("6", "runs"),
        ("7", "events"),
        ("1", "overview"),
    ):
        page.keyboard.press(key)
        page.wait_for_url(f"**/{path}")
    page.keyboard.press("/")
    page.keyboard.type("cause:M3")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=cause:M3")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("() => document.activeElement.textContent.trim() + (document.activeElement.name ?? '')")
        )
    assert {"Overview", "Events", "range", "q", "Show", "Pause", "PNG of Incidents over time"} <= reached
    assert any(text.startswith("I-") for text in reached)
    watched.check(console.url)


def test_fifty_tabs_of_one_browser_hear_the_news_over_one_stream(live_scene, served, chromium):
    console = served(Path("live-ledger"))
    context = chromium.new_context()
    context.set_default_timeout(4 * DEADLINE_MS)
    streams = []
    context.on("request", lambda request: "/api/stream" in request.url and streams.append(request.url))
    try:
        first = context.new_page()
        first.goto(f"{console.url}runs?token={console.token}")
        tabs = [first, *(context.new_page() for _ in range(49))]
        for tab in tabs[1:]:
            tab.goto(f"{console.url}runs", wait_until="domcontentloaded")
        before = {tab.locator("#live").get_attribute("data-mark") for tab in tabs}
        short_handoff(live_scene, "new-victim", CYAN, 20, 6)
        live_scene.flush()
        newest = max(before, key=lambda mark: int(mark.partition(".")[2]))
        for tab in tabs:
            tab.wait_for_function(f"() => document.getElementById('live').dataset.mark !== '{newest}'")
        assert len(streams) == 1
    finally:
        context.close()


def test_fifty_listeners_and_one_that_reads_nothing_keep_nobody_waiting(live_scene, served):
    console = served(Path("live-ledger"))
    address = (re.search(r"//([\d.]+):(\d+)", console.url)).groups()
    host, port = address[0], int(address[1])

    def ask(path: str) -> socket.socket:
        made = socket.create_connection((host, port), timeout=30)
        head = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {console.token}\r\n\r\n"
        made.sendall(head.encode())
        return made

    listeners = [ask("/api/stream?seen=") for _ in range(50)]
    sluggish = socket.socket()
    sluggish.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sluggish.connect((host, port))
    head = f"GET /static/console.css HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
    sluggish.sendall(head.encode() * 200)
    try:
        for listener in listeners:
            heard = b""
            while b"event: snapshot" not in heard:
                heard += listener.recv(4096)
            assert heard.startswith(b"HTTP/1.1 200")
        with ask("/overview") as answered:
            assert answered.recv(100).startswith(b"HTTP/1.1 200")
        short_handoff(live_scene, "new-victim", CYAN, 20, 6)
        live_scene.flush()
        for listener in listeners:
            assert b"event: snapshot" in listener.recv(4096)
    finally:
        for made in (*listeners, sluggish):
            made.close()


def test_a_growing_ledger_changes_the_page_in_place(live_scene, served, watch):
    console, watched = served(Path("live-ledger")), watch()
    page = watched.page
    page.goto(f"{console.url}incidents?token={console.token}")
    page.locator(".mode", has_text="LIVE").wait_for()
    assert "6 responses" in page.locator(".counts").first.inner_text()
    page.evaluate("() => { window.sameDocument = true; document.querySelector('#incidents a[id]').focus(); }")
    focused = page.evaluate("() => document.activeElement.id")
    ordinary(live_scene, "new-donor", ACME, 40, 4)
    short_handoff(live_scene, "new-victim", CYAN, 40, 4)
    live_scene.beat()
    live_scene.flush()
    page.get_by_text("3 contaminated").wait_for()
    assert page.evaluate("() => window.sameDocument")
    assert page.evaluate("() => document.activeElement.id") == focused
    page.get_by_role("button", name="Pause").click()
    ordinary(live_scene, "later", ACME, 40, 4)
    live_scene.flush()
    page.get_by_text("PAUSED, newer data wait").wait_for()
    assert "8 responses" in page.locator(".counts").first.inner_text()
    page.get_by_role("button", name="Follow").click()
    page.get_by_text("9 responses").wait_for()
    live_scene.close()
    page.locator(".mode", has_text="FINISHED").wait_for()
    watched.check(console.url)


def test_the_map_follows_a_growing_ledger(live_scene, served, watch):
    console, watched = served(Path("live-ledger")), watch()
    page = watched.page
    page.goto(f"{console.url}pages?token={console.token}")
    page.wait_for_selector("#chart-pages[data-ready]")
    short_handoff(live_scene, "new-victim", CYAN, 20, 6)
    live_scene.beat()
    live_scene.flush()
    page.wait_for_function("() => document.getElementById('chart-pages').data[2].x.length === 22")
    watched.check(console.url)


def test_a_wrong_token_meets_a_clear_page_and_the_right_one_gets_in(finished_ledger, served, watch):
    console, watched = served(finished_ledger), watch()
    page = watched.page
    assert page.goto(f"{console.url}incidents?token=not-the-token").status == 401
    assert page.get_by_role("heading").inner_text() == "Token needed"
    page.get_by_label("Token").fill("still not the token")
    page.get_by_role("button", name="Open").click()
    page.get_by_role("alert").wait_for()
    assert "not the token" in page.get_by_role("alert").inner_text()
    page.get_by_label("Token").fill(console.token)
    page.get_by_role("button", name="Open").click()
    page.wait_for_url("**/incidents")
    page.locator("#incidents tbody tr").nth(1).wait_for()
    assert [c for c in watched.complaints if "401" not in c] == []


def test_a_page_that_was_refused_goes_on_when_the_key_is_mended(live_scene, served, watch):
    console, watched = served(Path("live-ledger")), watch()
    page, context = watched.page, watched.page.context
    page.goto(f"{console.url}incidents?token={console.token}")
    page.locator(".mode", has_text="LIVE").wait_for()
    page.evaluate("() => { window.sameDocument = true; }")
    context.clear_cookies()
    ordinary(live_scene, "unseen", ACME, 40, 4)
    live_scene.flush()
    page.locator("#refused", has_text="token is not taken any more").wait_for()
    assert "6 responses" in page.locator(".counts").first.inner_text()
    refused = context.new_page()
    assert refused.goto(f"{console.url}events").status == 401
    refused.get_by_role("heading", name="Token needed").wait_for()
    other = context.new_page()
    other.goto(f"{console.url}?token={console.token}")
    page.bring_to_front()
    page.get_by_text("7 responses").wait_for()
    page.locator("#refused").wait_for(state="hidden")
    assert page.evaluate("() => window.sameDocument")
    ordinary(live_scene, "seen", ACME, 40, 4)
    live_scene.flush()
    page.get_by_text("8 responses").wait_for()
    refused.bring_to_front()
    refused.get_by_role("heading", name="Events").wait_for()
    assert [c for c in watched.complaints if "401" not in c] == []


def test_pages_can_be_used_by_everybody(finished_ledger, served, watch):
    """axe-core finds nothing, in both themes."""
    from axe_playwright_python.sync_playwright import Axe

    console = served(finished_ledger)
    for scheme in ("dark", "light"):
        watched = watch(color_scheme=scheme, bypass_csp=True)
        page = watched.page
        page.goto(f"{console.url}?token={console.token}")
        page.locator("#incidents a").first.wait_for()
        incident = page.locator("#incidents a[id^=open]").first.get_attribute("href")
        for path in (
            "overview",
            "incidents",
            incident.lstrip("/"),
            "pages",
            "held",
            "latency",
            "events",
            "runs",
            "login",
        ):
            page.goto(console.url + path)
            ready(page)
            closed = page.locator("details:not([open]) > summary")
            while closed.count():
                closed.first.click()
            violations = Axe().run(page).response["violations"]
            assert [(v["id"], [n["html"] for n in v["nodes"]][:3]) for v in violations] == [], path


def test_it_ends_at_once_although_a_page_listens(finished_ledger, served, watch):
    console, watched = served(finished_ledger), watch()
    with watched.page.expect_request(lambda request: "/api/stream" in request.url):
        watched.page.goto(f"{console.url}?token={console.token}")
    started = time.monotonic()
    console.process.send_signal(signal.SIGINT)
    console.process.wait(timeout=10)
    assert time.monotonic() - started < 5
    assert console.process.returncode == 0
    assert "Traceback" not in console.process.stderr.read()


def test_a_page_without_a_stream_says_so_asks_by_itself_and_takes_the_stream_again(live_scene, served, watch):
    console, watched = served(Path("live-ledger")), watch()
    page, tried = watched.page, []

    def refuse(route):
        tried.append(time.monotonic())
        route.fulfill(status=502)

    page.route("**/api/stream*", refuse)
    page.goto(f"{console.url}incidents?token={console.token}")
    page.locator("#lost", has_text="the console's stream is away").wait_for()
    short_handoff(live_scene, "new-victim", CYAN, 40, 4)
    live_scene.beat()
    live_scene.flush()
    page.get_by_text("3 contaminated").wait_for()
    assert page.locator("#lost").is_visible()
    gaps = [later - before for before, later in itertools.pairwise(tried)]
    assert len(gaps) >= 2
    assert gaps[-1] > 1.5 * gaps[0]
    page.unroute("**/api/stream*")
    page.locator("#lost").wait_for(state="hidden")
    ordinary(live_scene, "later", ACME, 40, 4)
    live_scene.flush()
    page.get_by_text("8 responses").wait_for()
    assert [c for c in watched.complaints if "502" not in c] == []


@pytest.mark.parametrize("status", [401, 403])
def test_a_page_whose_stream_is_refused_says_what_to_do(finished_ledger, served, watch, status):
    console, watched = served(finished_ledger), watch()
    page = watched.page
    for path in ("stream*", "mark*"):
        page.route(f"**/api/{path}", lambda route: route.fulfill(status=status))
    page.goto(f"{console.url}runs?token={console.token}")
    page.locator("#refused", has_text="give one").wait_for()
    assert [c for c in watched.complaints if str(status) not in c] == []


def test_keys_commands_help_and_palette_are_those_of_the_table(finished_ledger, served, watch):
    from axe_playwright_python.sync_playwright import Axe

    console, watched = served(finished_ledger), watch(bypass_csp=True)
    page = watched.page
    page.goto(f"{console.url}incidents?token={console.token}")
    page.locator("#incidents tbody tr").nth(1).wait_for()
    page.keyboard.press("?")
    assert "sort by a column" in page.locator("#help").inner_text()
    assert "half a page down" not in page.locator("#help").inner_text()
    assert Axe().run(page).response["violations"] == []
    page.keyboard.press("Escape")
    for keys, row in (("j", 0), ("j", 1), ("g", 0), ("G", 1), ("k", 0), ("ArrowDown", 1)):
        page.keyboard.press(keys)
        rows = "[...document.querySelectorAll('#incidents tbody tr')]"
        assert page.evaluate(f"() => {rows}.indexOf(document.activeElement)") == row
    page.keyboard.press("a")
    assert "only reads" in page.locator("#said").inner_text()
    page.keyboard.press("Control+k")
    page.keyboard.type("beyond what there is")
    assert page.locator("#found li").count() == 0
    page.locator("#command").fill("half as much")
    assert page.locator("#found li").count() == 0  # not on this screen
    page.locator("#command").fill("the screen H")
    assert "4" in page.locator("#found li").inner_text()
    assert Axe().run(page).response["violations"] == []
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/held")
    page.keyboard.press(":")
    page.keyboard.type("rang 5")
    page.keyboard.press("Enter")
    page.locator("#palette-said", has_text="did you mean :range?").wait_for()
    page.locator("#command").fill(":range 2026-09-21T14:13:20Z..2026-09-21T14:13:21Z")
    page.keyboard.press("Enter")
    page.wait_for_url("**/held?from=2026-09-21T14:13:20Z&to=2026-09-21T14:13:21Z")
    page.locator(".mode", has_text="FIXED RANGE").wait_for()
    page.keyboard.press("[")
    page.locator("#cursor").wait_for()
    page.keyboard.press("2")
    page.wait_for_url("**/incidents?**at=2026-09-21T14:13:20.95**")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/incidents/I-**")
    page.keyboard.press("Escape")
    page.wait_for_url("**/incidents?**")
    assert [c for c in watched.complaints if "400" not in c] == []


def test_a_page_that_is_paused_or_opened_stands_still_and_a_click_leads_on_paused(live_scene, served, watch):
    console, watched = served(Path("live-ledger")), watch()
    page = watched.page
    page.goto(f"{console.url}incidents?token={console.token}")
    page.locator("#incidents tbody tr").nth(1).wait_for()
    page.keyboard.press("Space")
    page.wait_for_url("**mode=paused**")
    page.locator(".mode", has_text="PAUSED").wait_for()
    page.keyboard.press("7")
    page.wait_for_url("**/events?at=**mode=paused**")
    assert page.locator(".mode").inner_text() == "PAUSED"
    assert page.get_by_role("button", name="Follow").is_visible()
    shown = page.locator("#events caption").inner_text()
    short_handoff(live_scene, "new-victim", CYAN, 40, 4)
    live_scene.beat()
    live_scene.flush()
    page.get_by_text("PAUSED, newer data wait").wait_for()
    assert page.locator("#events caption").inner_text() == shown
    page.keyboard.press("Space")
    page.wait_for_url("**/events")
    page.get_by_text("new-victim").first.wait_for()
    page.keyboard.press("2")
    page.locator("#incidents a[id^=open]").first.click()
    page.locator(".mode", has_text="HELD").wait_for()
    responses = page.locator("#h-responses + .scroll tbody tr")
    before = responses.count()
    short_handoff(live_scene, "another-victim", CYAN, 50, 4)
    live_scene.beat()
    live_scene.flush()
    page.get_by_text("PAUSED, newer data wait").wait_for()
    assert responses.count() == before
    page.keyboard.press("Space")
    page.locator("#paused").wait_for(state="hidden")
    watched.check(console.url)


def test_a_theme_is_kept_in_the_browser_and_colours_of_the_users_own_are_honoured(finished_ledger, served, watch):
    console, watched = served(finished_ledger), watch(color_scheme="light")
    page = watched.page
    page.goto(f"{console.url}incidents?token={console.token}")
    ready(page)

    def ground() -> str:
        return page.evaluate("() => getComputedStyle(document.body).backgroundColor")

    assert ground() == "rgb(255, 255, 255)"
    page.keyboard.press("T")
    with page.expect_request(lambda request: "theme=dark" in request.url):
        page.keyboard.press(":")
        page.keyboard.type("theme dark")
        page.keyboard.press("Enter")
    assert ground() == "rgb(18, 18, 18)"
    page.keyboard.press(":")
    page.keyboard.type("theme contrast")
    page.keyboard.press("Enter")
    assert ground() == "rgb(0, 0, 0)"
    page.goto(f"{console.url}held")
    assert ground() == "rgb(0, 0, 0)"
    page.emulate_media(forced_colors="active")
    assert page.evaluate("() => matchMedia('(forced-colors: active)').matches")
    painted = "(name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim()"
    assert page.evaluate(painted, "--contaminated") == "CanvasText"
    watched.check(console.url)


def test_saved_views_are_listed_and_a_view_is_shared_with_its_times_and_a_title(
    finished_ledger, served, watch, tmp_path
):
    from axe_playwright_python.sync_playwright import Axe

    views = tmp_path / "CONFIG" / "kvwitness" / "views.toml"
    views.parent.mkdir(parents=True)
    views.write_text('[views]\n"on-call" = "/incidents?q=cause:M3"\n')
    console, watched = served(finished_ledger), watch(bypass_csp=True)
    page = watched.page
    page.goto(f"{console.url}held?token={console.token}")
    page.get_by_role("button", name="Views", exact=True).click()
    page.locator("#found button", has_text="saved view on-call").click()
    page.wait_for_url("**/incidents?q=cause:M3")
    ready(page)
    assert page.locator(".modebar-btn").count() > 0
    assert page.locator(".modebar-btn[aria-label*='Share']").count() == 0  # none to another host
    page.get_by_role("button", name="Share", exact=True).click()
    page.get_by_label("Title").fill("Late writes of Monday")
    link = page.get_by_label("Link").input_value()
    assert link.startswith(f"{console.url}incidents?to=2026-09-21T14:13:21.37")
    assert "q=cause:M3" in link
    assert Axe().run(page).response["violations"] == []
    page.goto(link)
    assert page.title() == "Late writes of Monday · KV Witness"
    page.locator(".mode", has_text="FIXED RANGE").wait_for()
    watched.check(console.url)


def test_one_page_looks_at_all_ledgers_and_the_next_at_one_of_them(finished_ledger, live_scene, served, watch):
    from axe_playwright_python.sync_playwright import Axe

    live, watched = live_scene.directory.resolve(), watch()
    console, page = served(finished_ledger, "--ledger", str(live), "--write"), watched.page
    page.goto(f"{console.url}overview?ledger=all&token={console.token}")
    page.locator("#ledgers", has_text="incident-ledger FINISHED").wait_for()
    assert Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa"]}).violations_count == 0
    card = page.locator(".cards li", has_text="live-ledger")
    before = card.inner_text()
    # News of one ledger come to the page of all.
    ordinary(live_scene, "new-donor", ACME, 40, 4)
    short_handoff(live_scene, "new-victim", CYAN, 40, 4)
    live_scene.flush()
    page.wait_for_function("() => document.querySelector('.cards').innerText.includes('8 responses')")
    assert "6 responses" in before
    page.get_by_text("Ledger: all").click()
    page.locator(".ledgers").get_by_role("link", name="live-ledger").click()
    page.wait_for_url("**/overview?ledger=live-ledger")
    page.keyboard.press("2")
    page.wait_for_url("**/incidents?ledger=live-ledger")
    page.keyboard.press("L")
    page.keyboard.type("all")
    page.keyboard.press("Enter")
    page.wait_for_url("**/incidents?ledger=all")
    page.locator("#incidents tbody tr", has_text="live-ledger").first.get_by_role("link").click()
    page.wait_for_url("**/incidents/I-*?ledger=live-ledger")
    watched.check(console.url)
