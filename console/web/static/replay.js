// Moves a replay on: the cursor goes with time, the server draws what the record was there. The address is the whole state.
"use strict";

const STEP_MS = 1000;
const still = matchMedia("(prefers-reduced-motion: reduce)");
let movedAt = performance.now();
let scrubbing = false;
let asked = false;

const moment = (us) => {
  const rest = us % 1_000_000;
  const seconds = new Date((us - rest) / 1000).toISOString().slice(0, 19);
  return `${seconds}${rest ? `.${String(rest).padStart(6, "0")}` : ""}Z`;
};

// The rest of the address stays as the server wrote it.
function withValue(query, name, value) {
  const there = new RegExp(`([?&])${name}=[^&]*`);
  return there.test(query) ? query.replace(there, `$1${name}=${value}`) : `${query}${query ? "&" : "?"}${name}=${value}`;
}

async function drawMoment(us, speed) {
  let query = withValue(location.search, "at", moment(us));
  if (speed) query = withValue(query, "speed", speed);
  history.replaceState(null, "", location.pathname + query);
  live.dataset.at = us;
  await drawn();
}

async function drawn() {
  asked = true;
  try { await redraw(false); } finally { asked = false; sayStill(); }
}

function sayStill() {
  const words = document.getElementById("still");
  if (words) words.hidden = !(still.matches && live.dataset.replay === "playing");
}

async function tick() {
  const passed = performance.now() - movedAt;
  if (asked || passed < STEP_MS - 50) return;
  movedAt = performance.now();
  const { replay, at, last, speed, behind } = live.dataset;
  if (document.hidden || scrubbing || retry) return;
  if (replay === "playing" && !still.matches && at) {
    const next = Math.min(Number(at) + Math.round(passed * 1000 * Number(speed)), Number(last));
    await drawMoment(next, next >= Number(last) ? `${speed},standing` : null);
  } else if (behind === "yes") await drawn();
}
setInterval(tick, STEP_MS / 4);

function momentOf(line) {
  const { first, last } = live.dataset;
  return Number(first) + Math.round((Number(last) - Number(first)) * Number(line.value) / Number(line.max));
}
document.addEventListener("input", (event) => {
  if (event.target.id !== "scrub") return;
  scrubbing = true;
  document.getElementById("replay-at").textContent = moment(momentOf(event.target));
});
document.addEventListener("change", async (event) => {
  if (event.target.id !== "scrub") return;
  event.target.defaultValue = event.target.value;
  await drawMoment(momentOf(event.target), null);
  scrubbing = false;
});

document.addEventListener("click", (event) => {
  const link = event.target.closest("#replay a:not(.leave)");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  movedAt = performance.now();
  history.pushState(null, "", link.href);
  drawn();
});

still.addEventListener("change", sayStill);
sayStill();
