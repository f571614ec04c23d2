"""The web console without a browser: who gets in, what leaves, what is refused."""

import base64
import html
import re
import socket

import httpx
import numpy as np
import pytest
from scripted_ledger import ACME, BRIO, Scene, ordinary, short_handoff

import console.core.source as source_module
from console.core.run_start import RunSetting
from console.core.source import LedgerSource
from console.web.app import create_app
from console.web.errors import ServeError
from console.web.gate import SHORTEST, TOKEN_VARIABLE, Gate, Role, load_tokens
from console.web.serve import serve

TOKEN = "a-token-for-tests-only"
HOSTS = ("127.0.0.1", "localhost")
EVIL = "<script>alert(1)</script>\x1b[2J"


NOW = 1_790_000_060_000_000


def client_of(path, *, token: str | None = TOKEN, tokens=None, can_write=False, store=None) -> httpx.AsyncClient:
    gate = Gate(tokens or {TOKEN: Role.FORENSIC}, can_write=can_write)
    source = LedgerSource(path, now_us=lambda: NOW, engine="replay", store=store)
    app = create_app(source, gate, HOSTS, path.parent / "state", patience_s=60)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    transport = httpx.ASGITransport(app)
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", headers=headers)


PATHS = [
    "/",
    "/incidents",
    "/incidents/I-0000",
    "/pages",
    "/api/charts/pages",
    "/tables/incidents.csv",
    "/api/stream",
    "/static/console.js",
    "/nowhere",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("token", [None, "wrong", TOKEN[:-1], TOKEN + "x", "é"])
async def test_nothing_without_the_right_token(finished_ledger, path, token):
    async with client_of(finished_ledger, token=None) as client:
        headers = {} if token is None else {"authorization": f"Bearer {token}".encode()}
        answer = await client.get(path, headers=headers)
        assert answer.status_code == 401
        assert "resp-" not in answer.text
        assert ("Token needed" in answer.text) != path.startswith("/api/")


async def test_a_wrong_token_in_the_address_is_refused_in_words_and_not_repeated(finished_ledger):
    async with client_of(finished_ledger, token=None) as client:
        answer = await client.get("/incidents?token=hunter2hunter2")
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers
        assert "hunter2" not in answer.text


async def test_the_token_in_the_address_buys_a_cookie_and_leaves_the_address(finished_ledger):
    async with client_of(finished_ledger, token=None) as client:
        answer = await client.get(f"/incidents/I-1?resp=a%26b&token={TOKEN}&page=3")
        assert (answer.status_code, answer.headers["location"]) == (303, "/incidents/I-1?resp=a%26b&page=3")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert TOKEN not in cookie
        assert (await client.get("/incidents")).status_code == 200


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ("/pages?incident=I-1", "/pages?incident=I-1"), ("//evil.example/x", "/evil.example/x"), ("https://evil.example", "/https://evil.example"),
        ("/\\evil.example", "/evil.example"), ("\r\nset-cookie: x=1", "/%0D%0Aset-cookie:%20x=1"),
    ],
)  # fmt: skip
async def test_logging_in_leads_nowhere_else(finished_ledger, target, location):
    async with client_of(finished_ledger, token=None) as client:
        answer = await client.post("/login", data={"token": TOKEN, "next": target})
        assert (answer.status_code, answer.headers["location"]) == (303, location)


async def test_a_wrong_login_says_so(finished_ledger):
    async with client_of(finished_ledger, token=None) as client:
        answer = await client.post("/login", data={"token": "wrong", "next": '"><script>'})
        assert answer.status_code == 401
        assert "That is not the token" in answer.text
        assert "<script>" not in answer.text
        assert (await client.post("/login", content=b"x" * 5000)).status_code == 413


async def test_who_may_not_look_learns_nothing_by_asking_wrongly(finished_ledger):
    async with client_of(finished_ledger, token=None) as client:
        for method, path, status in (
            ("PUT", "/login", 405),
            ("DELETE", "/static/console.css", 405),
            ("POST", "/login", 413),
        ):
            answer = await client.request(method, path, content=b"x" * 5000)
            assert answer.status_code == status
            assert (
                finished_ledger.name not in answer.text and "critical" not in answer.text and "<html" not in answer.text
            )


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "169.254.169.254"])
async def test_other_host_names_are_refused(finished_ledger, host):
    async with client_of(finished_ledger) as client:
        answer = await client.get("/incidents", headers={"host": host})
        assert answer.status_code == 400


async def test_every_answer_keeps_to_itself(finished_ledger):
    async with client_of(finished_ledger) as client:
        for path in ("/incidents", "/pages", "/api/charts/pages", "/nowhere", "/login", "/static/console.css"):
            answer = await client.get(path)
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'self';")
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "same-origin"
            if not path.startswith("/static/"):
                assert answer.headers["cache-control"] == "no-store"


async def test_only_the_login_accepts_anything_but_reading(finished_ledger):
    async with client_of(finished_ledger) as client:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            for path in ("/incidents", "/pages", "/api/charts/pages"):
                assert (await client.request(method, path)).status_code == 405


async def test_no_page_names_another_host(finished_ledger, finished):
    async with client_of(finished_ledger) as client:
        for path in ("/incidents", f"/incidents/{finished.incidents[0].id}", "/pages", "/login"):
            text = (await client.get(path)).text
            assert re.findall(r"""(?:src|href|action)=["'](?:https?:)?//""", text) == []


async def test_the_list_and_the_incident_say_what_the_core_says(finished_ledger, finished):
    async with client_of(finished_ledger) as client:
        text = (await client.get("/incidents")).text
        for incident in finished.incidents:
            assert incident.id in text
            assert incident.title in text
            page = html.unescape((await client.get(f"/incidents/{incident.id}")).text)
            assert finished.readings(incident)[0].rid in page
            assert 'id="offending"' in page
            assert "FINISHED" in page
        late = next(i for i in finished.incidents if i.cause == "M3")
        chosen = (await client.get(f"/incidents/{late.id}", params={"page": 32})).text
        assert "Order of events on page 32" in chosen


async def test_what_is_not_there_is_a_404_that_says_what_is(finished_ledger, finished):
    async with client_of(finished_ledger) as client:
        answer = await client.get("/incidents/I-none")
        assert answer.status_code == 404
        assert finished.incidents[0].id in answer.text
        assert (await client.get("/pages", params={"pool": "x:1:kv"})).status_code == 404
        answer = await client.get("/api/charts/pages", params={"pool": "x:1:kv"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        assert (await client.get("/api/charts/pages", params={"to": "2020-01-01T00:00:00Z"})).status_code == 404
        assert (await client.get("/api/charts/pages", params={"theme": "<x>"})).status_code == 422


async def test_the_map_comes_binned_and_packed(finished_ledger):
    async with client_of(finished_ledger) as client:
        figure = (await client.get("/api/charts/pages")).json()
        heatmap, _, reads, writes = figure["data"]
        rows, cols = (int(n) for n in heatmap["z"]["shape"].split(","))
        cells = np.frombuffer(base64.b64decode(heatmap["z"]["bdata"]), np.uint8).reshape(rows, cols)
        assert (rows, cols) == (65, 600)
        assert set(np.unique(cells)) == {0, 3, 4, 5}
        assert (len(reads["x"]), len(writes["x"])) == (16, 4)
        part = (await client.get("/api/charts/pages", params={"rows": "30-33"})).json()
        assert part["data"][0]["z"]["shape"] == "4, 600"
        assert sorted(set(part["data"][2]["y"])) == [30, 31, 32, 33]


async def test_what_clients_chose_is_escaped_everywhere(tmp_path):
    scene = Scene(tmp_path / "ledger")
    ordinary(scene, f"donor{EVIL}", ACME, 1, 3)
    short_handoff(scene, f"victim{EVIL}", BRIO, 1, 3)
    scene.close()
    async with client_of(scene.directory) as client:
        (incident_id,) = set(re.findall(r"/incidents/(I-[0-9a-f]+)", (await client.get("/incidents")).text))
        for path in (f"/incidents/{incident_id}", "/pages", "/incidents/<script>alert(1)"):
            text = (await client.get(path)).text
            assert "alert(1)" in text
            assert "<script>alert" not in text
            assert "\x1b" not in text
        figure = (await client.get("/api/charts/pages")).json()
        hover = figure["data"][2]["hovertext"][0]
        assert "&lt;script&gt;" in hover
        assert "<script>" not in hover


async def test_states_without_data_say_why_and_what_next(tmp_path, monkeypatch):
    scene = Scene(tmp_path / "ledger")
    scene.flush()
    async with client_of(scene.directory) as client:
        text = (await client.get("/incidents")).text
        assert "No request yet" in text
        assert "LIVE" in text
        assert "Nothing is recorded yet" in (await client.get("/pages")).text
    scene.close()
    monkeypatch.setattr(source_module, "foreign_reads", lambda *_, **__: 1 / 0)
    async with client_of(scene.directory) as client:
        text = (await client.get("/incidents")).text
        assert "The ledger could not be read" in text
        assert "ZeroDivisionError" in text
        assert (await client.get("/api/charts/pages")).status_code == 503


async def test_fragments_are_the_page_without_its_frame(finished_ledger):
    async with client_of(finished_ledger) as client:
        fragment = (await client.get("/incidents", headers={"x-fragment": "1"})).text
        assert fragment.startswith('<div data-mark="')
        assert "<html" not in fragment


def test_tokens_from_file_environment_or_made_here(tmp_path):
    file = tmp_path / "token"
    file.write_text("from-a-file-0123456789\n\noperator the-token-of-an-operator\nforensic the-token-of-forensics\n")
    roles = {
        "from-a-file-0123456789": "viewer",
        "the-token-of-an-operator": "operator",
        "the-token-of-forensics": "forensic",
    }
    assert load_tokens(file, {}) == (roles, None)
    assert load_tokens(None, {TOKEN_VARIABLE: "from-the-environment"}) == ({"from-the-environment": Role.VIEWER}, None)
    tokens, made = load_tokens(None, {})
    assert tokens == {made: Role.FORENSIC}
    assert len(made) >= 32
    assert load_tokens(None, {})[1] != made


BAD_TOKENS = [
    b"", b"short", b"x" * (SHORTEST - 1), "tökén-tökén-tökén".encode(), b"\xff\xfe" * 20, b"\n\n",
    b"king a-token-of-a-wrong-role", b"viewer operator a-token-with-two-roles",
]  # fmt: skip


@pytest.mark.parametrize("content", BAD_TOKENS)
def test_bad_token_files_are_refused(tmp_path, content):
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(ServeError, match="token"):
        load_tokens(file, {})
    with pytest.raises(ServeError, match="No such file"):
        load_tokens(tmp_path / "none", {})


def test_a_port_in_use_is_said_at_once(finished_ledger, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServeError, match=f"port {port} on 127.0.0.1 is in use: choose another with --port"):
            serve_at(finished_ledger, tmp_path, host="127.0.0.1", port=port, token_file=None)


def test_open_addresses_need_a_token_of_ones_own_and_a_name(finished_ledger, tmp_path, monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with pytest.raises(ServeError, match="--token-file"):
        serve_at(finished_ledger, tmp_path, host="0.0.0.0", port=0, token_file=None)
    file = tmp_path / "token"
    file.write_text("from-a-file-0123456789")
    with pytest.raises(ServeError, match="--allow-host"):
        serve_at(finished_ledger, tmp_path, host="0.0.0.0", port=0, token_file=file)


def serve_at(ledger, state, *, host, port=0, token_file=None) -> None:
    source = LedgerSource(ledger, now_us=lambda: 0)
    runs = RunSetting(state)
    serve(
        {ledger.name: source},
        host=host,
        port=port,
        token_file=token_file,
        allowed_hosts=(),
        state=state,
        can_write=False,
        runs=runs,
    )
