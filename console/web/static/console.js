// Keeps a page up to date: an event stream says that there is something new, the page's own address gives it.
"use strict";

const live = document.getElementById("live");
const pause = document.getElementById("pause");
let version = Number(live.dataset.version);
let paused = false;
let waiting = false;
let stream = null;

function remember(root) {
  const scrolls = new Map();
  for (const box of root.querySelectorAll(".scroll[id]")) scrolls.set(box.id, [box.scrollTop, box.scrollLeft]);
  const open = [...root.querySelectorAll("details[id][open]")].map((details) => details.id);
  return { scrolls, open, focus: root.contains(document.activeElement) ? document.activeElement.id : "" };
}

function restore(root, kept) {
  for (const [id, [top, left]] of kept.scrolls) {
    const box = document.getElementById(id);
    if (box) { box.scrollTop = top; box.scrollLeft = left; }
  }
  for (const id of kept.open) document.getElementById(id)?.setAttribute("open", "");
  if (kept.focus) document.getElementById(kept.focus)?.focus({ preventScroll: true });
}

async function refresh() {
  const answer = await fetch(location.href, { headers: { "X-Fragment": "1" }, cache: "no-store" });
  if (answer.status === 401) { location.reload(); return; }
  const fragment = new DOMParser().parseFromString(await answer.text(), "text/html").body.firstElementChild;
  if (!fragment) return;
  version = Number(fragment.dataset.version);
  const kept = remember(live);
  live.replaceChildren(...fragment.childNodes);
  live.dataset.version = String(version);
  restore(live, kept);
  document.dispatchEvent(new Event("kvwitness:refreshed"));
}

let busy = false;
async function news() {
  const mark = document.getElementById("paused");
  if (paused) { waiting = true; if (mark) mark.hidden = false; return; }
  if (busy) { waiting = true; return; }
  busy = true;
  try {
    do { waiting = false; await refresh(); } while (waiting && !paused);
  } catch {
    // The stream reconnects by itself and tells of what was missed.
  } finally { busy = false; }
}

function listen() {
  stream?.close();
  stream = new EventSource(`/api/stream?seen=${version}`);
  stream.addEventListener("snapshot", (event) => { if (JSON.parse(event.data).version !== version) news(); });
}

pause.addEventListener("click", () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
  pause.textContent = paused ? "Follow" : "Pause";
  if (!paused && waiting) news();
});

document.addEventListener("visibilitychange", () => {
  if (document.hidden) { stream?.close(); stream = null; } else listen();
});
addEventListener("pagehide", () => stream?.close());
listen();

// The line to look at first stands in the middle of its box; the page itself stays where it is.
const events = document.getElementById("events-scroll");
const offending = document.getElementById("offending");
if (events && offending) events.scrollTop = offending.offsetTop - events.clientHeight / 2;

// The page map.
const map = document.getElementById("map");
if (map) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const info = document.getElementById("map-info");
  const problem = document.getElementById("map-problem");
  const ranks = ["free", "held", "another tenant", "a", "b", "c", "d", "e", "f"];
  let zoom = {};
  let drawing = 0;

  const draw = async () => {
    const mine = ++drawing;
    const query = new URLSearchParams({ theme: dark.matches ? "dark" : "light", ...zoom });
    const answer = await fetch(`${map.dataset.source}&${query}`, { cache: "no-store" });
    if (mine !== drawing) return;
    problem.hidden = answer.ok;
    if (!answer.ok) { problem.textContent = `The map could not be drawn (HTTP ${answer.status}); what is shown is older.`; return; }
    const figure = await answer.json();
    const config = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
    await Plotly.react(map, figure.data, figure.layout, config);
    map.dataset.version = String(figure.version);
    if (!map.dataset.ready) { map.dataset.ready = "1"; follow(); }
  };

  const instant = (text) => Math.round(Date.parse(String(text).replace(" ", "T") + "Z") * 1000);
  let timer = 0;
  const follow = () => {
    map.on("plotly_relayout", (change) => {
      if (change["xaxis.autorange"] || change["yaxis.autorange"]) zoom = {};
      else if ("xaxis.range[0]" in change || "yaxis.range[0]" in change) {
        if ("xaxis.range[0]" in change) Object.assign(zoom, { from_us: instant(change["xaxis.range[0]"]), to_us: instant(change["xaxis.range[1]"]) + 1000 });
        if ("yaxis.range[0]" in change) {
          const pages = [change["yaxis.range[0]"], change["yaxis.range[1]"]].map(Number).sort((a, b) => a - b);
          Object.assign(zoom, { first: Math.max(Math.floor(pages[0]), 0), last: Math.max(Math.ceil(pages[1]), 0) });
        }
      } else return;
      clearTimeout(timer);
      timer = setTimeout(draw, 150);
    });
    map.on("plotly_hover", (event) => {
      const point = event.points[0];
      if (point.data.type === "heatmap") info.textContent = `page ${point.y}, ${point.x}: ${ranks[point.z] ?? point.z}`;
    });
  };

  addEventListener("DOMContentLoaded", draw);
  document.addEventListener("kvwitness:refreshed", draw);
  dark.addEventListener("change", draw);
}
