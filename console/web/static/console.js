// Keeps a page up to date: an event stream says that there is something new, the page's own address gives it.
"use strict";

const live = document.getElementById("live");
const bar = document.getElementById("bar");
const pause = document.getElementById("pause");
// Of several ledgers that are served, each page looks at one, or at all.
const ofLedger = live.dataset.ledger ? `ledger=${encodeURIComponent(live.dataset.ledger)}` : "";
let stopped = false; // paused here, and not in the address yet
let goesOn = false; // an incident that is open is followed all the same
let waiting = false;

function remember(root) {
  const scrolls = new Map();
  for (const box of root.querySelectorAll(".scroll[id]")) scrolls.set(box.id, [box.scrollTop, box.scrollLeft]);
  const open = [...root.querySelectorAll("details[id][open]")].map((details) => details.id);
  // What somebody is writing is theirs until they send it.
  const written = [...root.querySelectorAll("input[id]")].filter((box) => box.value !== box.defaultValue).map((box) => [box.id, box.value]);
  return { scrolls, open, written, row: selectedRow(root), focus: root.contains(document.activeElement) ? document.activeElement.id : "" };
}

// The row of a table that has the focus: by what it is of where it says so, else by its place.
function selectedRow(root) {
  const row = document.activeElement?.matches("tbody tr") && root.contains(document.activeElement) ? document.activeElement : null;
  const box = row?.closest(".scroll[id]");
  return box && { box: box.id, at: row.sectionRowIndex, of: row.querySelector("[id]")?.id };
}

function restore(kept) {
  for (const [id, [top, left]] of kept.scrolls) {
    const box = document.getElementById(id);
    if (box) { box.scrollTop = top; box.scrollLeft = left; }
  }
  for (const id of kept.open) document.getElementById(id)?.setAttribute("open", "");
  for (const [id, text] of kept.written) {
    const box = document.getElementById(id);
    if (box) box.value = text;
  }
  if (kept.row) {
    const rows = document.getElementById(kept.row.box)?.querySelectorAll("tbody tr");
    const row = document.getElementById(kept.row.of ?? "")?.closest("tr") ?? rows?.[kept.row.at];
    if (row) { row.tabIndex = -1; row.focus({ preventScroll: true }); }
  }
  if (kept.focus) document.getElementById(kept.focus)?.focus({ preventScroll: true });
}

// Charts are kept through a refresh: Plotly draws the new figure into the old place, and a zoom survives.
function keepCharts(fresh) {
  for (const place of fresh.querySelectorAll(".chart[id]")) {
    const old = document.getElementById(place.id);
    if (!old) continue;
    old.dataset.query = place.dataset.query;
    place.replaceWith(old);
  }
}

// Refused (the key is gone or was changed): that is said, and tried again until it is mended, here or in another tab.
const RETRY_MS = 5000;
let retry = null;
function again(is) {
  clearTimeout(retry);
  retry = is ? setTimeout(tryAgain, RETRY_MS) : null;
}
function refused(answer) {
  const is = answer.status === 401 || answer.status === 403;
  document.getElementById("refused")?.toggleAttribute("hidden", !is);
  again(is);
  return is;
}
async function tryAgain() {
  if (document.hidden) { again(true); return; }
  try { await refresh(false); hearing(true); follow(); } catch { again(true); }
}

async function refresh(whole) {
  const address = location.href;
  const answer = await fetch(address, { headers: { "X-Fragment": "1" }, cache: "no-store" });
  if (refused(answer) || answer.status >= 500) throw new Error(`HTTP ${answer.status}`);
  const fragment = new DOMParser().parseFromString(await answer.text(), "text/html").body.firstElementChild;
  if (!fragment?.dataset.mark || address !== location.href) return;
  const kept = remember(live);
  keepCharts(fragment);
  live.replaceChildren(...fragment.querySelector(".live").childNodes);
  Object.assign(live.dataset, fragment.dataset);
  const fresh = fragment.querySelector(".bar");
  if (whole) bar.replaceChildren(...fresh.childNodes);
  else if (live.dataset.replay) { // what is written into the lines for time and filter stays
    bar.querySelector("nav").replaceWith(fresh.querySelector("nav"));
    bar.querySelector("[name=at]").value = fresh.querySelector("[name=at]").value;
  }
  restore(kept);
  document.dispatchEvent(new Event("kvwitness:refreshed"));
}

// A page that hears nothing must not look alive; nor one that only asks now and then.
let silent = null;
let why = "";
let lost = "";
function showLost() {
  const box = document.getElementById("lost");
  if (!box) return;
  box.textContent = lost;
  box.hidden = !lost;
}
function hearing(is, words = "CUT OFF: this page hears nothing from the console; it asks again by itself") {
  if (!is && retry) return; // it is said that the page is refused
  why = is ? "" : words;
  if (is || lost) { clearTimeout(silent); silent = null; lost = why; showLost(); }
  else silent ??= setTimeout(() => { lost = why; showLost(); }, 5000);
}
document.addEventListener("kvwitness:refreshed", showLost);

function tellOfNews() {
  waiting = true;
  const mark = document.getElementById("paused");
  if (mark) mark.hidden = false;
}

let busy = false;
async function news() {
  if (stopped) { tellOfNews(); return; }
  if (busy) { waiting = true; return; }
  busy = true;
  try {
    do { waiting = false; await refresh(false); } while (waiting && !stopped);
    if (!away) hearing(true);
  } catch {
    hearing(false); // the stream, or asking in its place, tells of what was missed
  } finally { busy = false; }
}

// Another address of the same screen, without leaving it.
async function show(address) {
  history.pushState(null, "", address);
  await redraw(true);
}
async function redraw(whole) {
  try { await refresh(whole); hearing(true); } catch { hearing(false); }
  if (waiting && !standing()) news(); // what was heard while the page stood may be newer than what it has just drawn
}
addEventListener("popstate", () => redraw(true));

// One stream for all tabs of a browser, which allows six connections to a server: the tab that holds the lock listens
// and tells the others. Without locks (no secure context) every visible tab has its own.
const others = new BroadcastChannel(`kvwitness${ofLedger}`);
let letGo = null;
// A range that stands still is not drawn again, but once where the page is older than this server's first reading.
function heard(mark) {
  if (live.dataset.replay) return; // what comes in changes nothing of what was
  if (mark === live.dataset.mark) return;
  if (standing() && !live.dataset.mark.endsWith(".0")) { tellOfNews(); return; }
  news();
}
others.addEventListener("message", (event) => {
  if (event.data.mark) heard(event.data.mark);
  else if (letGo?.mark) others.postMessage({ mark: letGo.mark });
});

// While the stream is away the page asks in its place, after growing waits, and opens the stream again each time. Only a
// refusal (401, 403) ends that, until the key is mended.
const FIRST_WAIT_MS = 1000, LONGEST_WAIT_MS = 30000;
let away = null;
let wait = FIRST_WAIT_MS;
function streamAway() {
  if (away || !letGo) return;
  away = setTimeout(ask, wait);
  wait = Math.min(2 * wait, LONGEST_WAIT_MS);
}
function streamBack() {
  clearTimeout(away);
  away = null;
  wait = FIRST_WAIT_MS;
  hearing(true);
}

async function ask() {
  let answer = null;
  try { answer = await fetch(`/api/mark?${ofLedger}`, { cache: "no-store" }); } catch { /* nobody there */ }
  away = null;
  if (!letGo) return;
  if (answer && refused(answer)) { letGo.end(); return; }
  letGo.open();
  streamAway();
  if (!answer?.ok) { hearing(false); return; }
  const { mark } = await answer.json();
  hearing(false, `ASKING every ${Math.round(wait / 2000)} s: the console's stream is away, what is new comes late`);
  tell(mark);
}

function tell(mark) {
  if (letGo) letGo.mark = mark;
  others.postMessage({ mark });
  heard(mark);
}

function listen(over) {
  let stream = null;
  function open() {
    if (stream && stream.readyState !== EventSource.CLOSED) return;
    stream = new EventSource(`/api/stream?seen=${encodeURIComponent(live.dataset.mark)}&${ofLedger}`);
    stream.addEventListener("open", streamBack);
    stream.addEventListener("error", () => { if (!away) hearing(false); streamAway(); });
    stream.addEventListener("full", streamAway);
    stream.addEventListener("snapshot", (event) => tell(JSON.parse(event.data).mark));
  }
  letGo = { mark: null, open, end: () => { clearTimeout(away); away = null; stream.close(); letGo = null; over(); } };
  open();
}

let asking = null;
function follow() {
  if (document.hidden) { asking?.abort(); asking = null; letGo?.end(); return; }
  if (asking || letGo) return;
  others.postMessage({});
  if (!navigator.locks) { listen(() => {}); return; }
  const mine = asking = new AbortController();
  navigator.locks.request(`kvwitness-stream${ofLedger}`, { signal: mine.signal }, () => new Promise(listen)).catch(() => {})
    .finally(() => { if (asking === mine) asking = null; });
}
document.addEventListener("visibilitychange", () => { if (retry && !document.hidden) tryAgain(); else follow(); });
addEventListener("pagehide", () => { asking?.abort(); asking = null; letGo?.end(); });
addEventListener("pageshow", follow);

// Pausing is of the view, so that it is in the address; an open incident is held until Follow is pressed.
function standing() { return stopped || (!goesOn && Boolean(live.dataset.stands)); }
function showStanding() {
  const is = standing();
  pause.setAttribute("aria-pressed", String(is));
  pause.textContent = is ? "Follow" : "Pause";
}
pause.addEventListener("click", async () => {
  if (live.dataset.stands === "held") {
    goesOn = !goesOn;
    showStanding();
    if (goesOn && waiting) news();
    return;
  }
  stopped = !live.dataset.stands && !stopped; // at once, whatever the console answers
  showStanding();
  if (await go("pause")) stopped = false;
  showStanding();
});
document.addEventListener("kvwitness:refreshed", showStanding);
showStanding();

// The line to look at first stands in the middle of its box; the page itself stays where it is.
const events = document.getElementById("events-scroll");
const offending = document.getElementById("offending");
if (events && offending) events.scrollTop = offending.offsetTop - events.clientHeight / 2;
