// Keys, commands and the palette, all from the action table that the page carries. What has an address, the console says.
"use strict";

const ACTIONS = JSON.parse(document.getElementById("shortcuts").textContent);
const VIEWS = JSON.parse(document.getElementById("views").textContent);
const palette = document.getElementById("palette");
const line = document.getElementById("command");
const found = document.getElementById("found");

// Words where they are looked for: in the palette while it is open, else in the head of the page.
function say(words) { document.getElementById(palette.open ? "palette-said" : "said").textContent = words; }

async function addressOf(asked) {
  const at = location.pathname + location.search;
  const answer = await fetch(`/api/address?${new URLSearchParams({ at, ...asked })}`, { cache: "no-store" });
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error?.message ?? `HTTP ${answer.status}`);
  return said.address;
}

async function open(asked) {
  try {
    const address = await addressOf(asked);
    palette.close();
    const there = new URL(address, location.href);
    const ledger = (query) => query.get("ledger");
    const isHere = there.pathname === location.pathname && ledger(there.searchParams) === ledger(new URLSearchParams(location.search));
    if (isHere) await show(address); // what is heard is of the page's own ledger
    else location.assign(address);
    return true;
  } catch (error) {
    say(error.message);
    return false;
  }
}
function go(action, argument = "") { return open({ action, argument }); }

// Rows of tables by j and k; the row that has the focus is the one that is selected.
function rowsOf(row) {
  const table = row?.closest("table") ?? document.querySelector("#live #incidents") ?? document.querySelector("#live table");
  return [...(table?.querySelectorAll("tbody tr") ?? [])].filter((one) => one.offsetParent);
}
function selected() { return document.activeElement?.closest?.("#live tbody tr"); }
function select(choose) {
  const now = selected();
  const rows = rowsOf(now);
  const row = rows[Math.max(0, Math.min(choose(rows.indexOf(now), rows.length), rows.length - 1))];
  if (!row) { say("there is no row here"); return; }
  row.tabIndex = -1;
  row.focus();
}

function incidentHere() {
  const link = selected()?.querySelector('a[href^="/incidents/"]')?.getAttribute("href") ?? location.href;
  const { pathname, search } = new URL(link, location.href);
  const id = /^\/incidents\/([^/]+)/.exec(pathname)?.[1];
  return id && `/incidents/${id}/triage${search}`; // where it is written: in its own ledger
}

// What people say of an incident is sent as the form of its page is.
async function kept(act, text) {
  const word = document.body.dataset.word;
  if (!word) { say("this page only reads: it takes --write and a token that may"); return; }
  const incident = incidentHere();
  if (!incident) { say("no incident is selected; j and k go from row to row"); return; }
  const [length, ...rest] = act === "silence" ? text.split(" ") : ["", text];
  const body = new URLSearchParams({ word, act, length, words: rest.join(" ") });
  const answer = await fetch(incident, { method: "POST", body });
  if (!answer.ok) {
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    say(page.querySelector("#fault p, .notice p")?.textContent ?? `HTTP ${answer.status}`);
    return;
  }
  palette.close();
  await refresh(false);
  say(`${decodeURIComponent(incident)}: kept`);
}

async function copy() {
  await navigator.clipboard.writeText(location.href);
  say("the address is copied");
}

// The link for somebody else: host, times written out, and a title if it is given one.
const sharing = document.getElementById("share");
const shareTitle = document.getElementById("share-title");
const shareLink = document.getElementById("share-link");
let shared = null;
function showLink() {
  const address = new URL(shared);
  if (shareTitle.value.trim()) address.searchParams.set("title", shareTitle.value.trim());
  else address.searchParams.delete("title");
  shareLink.value = address.href.replaceAll("%3A", ":");
}
async function share() {
  shared = new URL(await addressOf({ action: "share" }), location.href).href;
  palette.close();
  document.getElementById("share-said").textContent = "";
  shareTitle.value = new URL(shared).searchParams.get("title") ?? "";
  showLink();
  sharing.showModal();
  shareTitle.focus();
}
shareTitle.addEventListener("input", showLink);
document.getElementById("share-copy").addEventListener("click", async () => {
  const said = document.getElementById("share-said");
  shareLink.select();
  try {
    await navigator.clipboard.writeText(shareLink.value);
    said.textContent = "The link is copied.";
  } catch { said.textContent = "The browser lets nothing be copied here; the link is selected."; }
});

const IN_PAGE = {
  open: () => selected()?.querySelector("a")?.click(),
  down: () => select((at) => at + 1),
  up: () => select((at) => at - 1),
  first: () => select(() => 0),
  last: (_, all) => select((at, count) => count - 1),
  ack: (text) => kept("ack", text),
  silence: (text) => kept("silence", text),
  unsilence: (text) => kept("unsilence", text),
  note: (text) => kept("note", text),
  copy: () => copy().catch((error) => say(error.message)),
  share: () => share().catch((error) => say(error.message)),
  theme: (name) => {
    if (name && ![...THEMES, "system"].includes(name)) { say(`there is no theme ${name}; there are: ${THEMES.join(", ")}, system`); return; }
    chooseTheme(name || THEMES[(THEMES.indexOf(themeNow()) + 1) % THEMES.length]);
    say(`theme ${themeNow()}`);
  },
  command: () => openPalette(":"),
  palette: () => openPalette(""),
  help: () => { palette.close(); document.getElementById("help").showModal(); },
  pause: () => { palette.close(); pause.click(); },
};

function perform(action, argument = "") {
  if (!argument && action.argument && !action.argument.startsWith("[")) { openPalette(`:${action.command} `); return; }
  const there = document.querySelector(`#live [data-action="${action.id}"], #bar [data-action="${action.id}"]`);
  if (IN_PAGE[action.id]) IN_PAGE[action.id](argument);
  else if (!argument && there) { palette.close(); if (there.matches("input")) there.select(); else there.click(); }
  else go(action.id, argument);
}

// A key does what the table says, unless somebody is typing.
const KEY_OF_ROW = { ArrowDown: "j", ArrowUp: "k" };
document.addEventListener("keydown", (event) => {
  const dialog = event.target.closest("dialog"); // one that was closed may still have the focus
  const typing = dialog ? dialog.open : event.target.closest("input:not([type=range]), select, textarea");
  const key = event.ctrlKey || event.metaKey ? `ctrl+${event.key.toLowerCase()}` : (selected() && KEY_OF_ROW[event.key]) || event.key;
  if (event.altKey || (typing && key !== "ctrl+k")) return;
  if (key === " " && event.target.closest("a, button, summary, .scroll")) return;
  if (key === "Enter" && !event.target.matches("tr")) return; // a link or a button opens by itself
  const carries = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (carries) { event.preventDefault(); carries.click(); return; }
  const action = ACTIONS.find((one) => one.here && one.keys.includes(key));
  if (!action || key === "ctrl+p") return; // what a browser prints with
  event.preventDefault();
  document.getElementById("said").textContent = "";
  perform(action);
});

function offers(text) {
  const wanted = text.toLowerCase().replace(/^:/, "").trim();
  const commands = text.startsWith(":");
  const actions = ACTIONS.filter((one) => one.here && (commands ? one.command : one.command || one.keys.length));
  const lines = actions.map((one) => ({
    says: one.words, key: one.shown, command: one.command && `:${one.command}${one.argument ? ` ${one.argument}` : ""}`,
    name: one.command, act: () => perform(one),
  }));
  for (const [name, address] of Object.entries(VIEWS)) {
    lines.push({ says: `saved view ${name}`, key: "", command: `:view ${name}`, name: `view ${name}`, act: () => location.assign(address) });
  }
  const begun = (one) => one.name?.startsWith(wanted) || (one.name && wanted.startsWith(`${one.name} `));
  return lines.filter((one) => begun(one) || (!commands && one.says.toLowerCase().includes(wanted)));
}

function offer() {
  say("");
  found.replaceChildren(...offers(line.value).map((one) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(one.says, " ");
    for (const [tag, text] of [["code", one.command], ["kbd", one.key]]) {
      if (!text) continue;
      const part = document.createElement(tag);
      part.textContent = text;
      button.append(part, " ");
    }
    button.addEventListener("click", one.act);
    const item = document.createElement("li");
    item.append(button);
    return item;
  }));
}

function openPalette(text) {
  document.getElementById("help").close();
  if (!palette.open) palette.showModal();
  line.value = text;
  line.focus();
  offer();
}
line.addEventListener("input", offer);
palette.addEventListener("keydown", (event) => {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  event.preventDefault();
  const stops = [line, ...found.querySelectorAll("button")];
  stops[Math.max(0, Math.min(stops.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1), stops.length - 1))].focus();
});
document.getElementById("palette-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = line.value.trim();
  if (!text.startsWith(":")) { found.querySelector("button")?.click(); return; }
  const [word, ...rest] = text.slice(1).trim().split(" ");
  const action = ACTIONS.find((one) => one.here && one.command === word);
  const argument = rest.join(" ").trim();
  if (action && IN_PAGE[action.id] && (argument || !action.argument || action.argument.startsWith("["))) {
    if (["ack", "silence", "note"].includes(action.id)) { IN_PAGE[action.id](argument); return; }
    palette.close();
    IN_PAGE[action.id](argument);
  } else open({ command: text });
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("header [data-action], [data-closes]");
  if (!button || button === pause) return;
  if (button.dataset.closes) document.getElementById(button.dataset.closes).close();
  else perform(ACTIONS.find((one) => one.id === button.dataset.action));
});
document.getElementById("open-views")?.addEventListener("click", () => openPalette(":view "));
