// Draws the charts of a page, and makes what is dragged over one of them the range of the whole page.
"use strict";

// Nothing of a record is offered to anybody's cloud.
const CONFIG = { displaylogo: false, plotlyServerURL: "", showSendToCloud: false, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "toImage", "sendChartToCloud"] };

async function draw(place) {
  const query = new URLSearchParams(place.dataset.query);
  query.set("theme", themeNow());
  const mine = (place.turn = (place.turn ?? 0) + 1);
  const answer = await fetch(`/api/charts/${place.dataset.chart}?${query}`, { cache: "no-store" });
  if (mine !== place.turn) return;
  const problem = place.parentElement.querySelector(".chart-problem");
  problem.hidden = answer.ok;
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    problem.textContent = `This could not be drawn: ${said.error?.message ?? `HTTP ${answer.status}`}`;
    return;
  }
  const figure = await answer.json();
  await Plotly.react(place, figure.data, figure.layout, CONFIG);
  place.dataset.mark = figure.mark;
  if (place.dataset.ready) return;
  place.on("plotly_relayout", (change) => dragged(place, change));
  place.on("plotly_click", (event) => {
    const id = event.points[0].customdata;
    if (place.dataset.chart === "swimlanes" && id) go("incident", id);
  });
  place.dataset.ready = "1";
}

function drawAll() { for (const place of document.querySelectorAll(".chart")) draw(place); }

// Plotly writes times without a zone, and ours are UTC.
const rfc3339 = (text) => `${String(text).replace(" ", "T").replace(/(\.\d{6})\d*$/, "$1")}Z`;

function dragged(place, change) {
  const query = new URLSearchParams(location.search);
  const key = Object.keys(change).find((name) => /^xaxis\d*\.range\[0\]$/.test(name));
  if (Object.keys(change).some((name) => name.endsWith(".autorange"))) {
    for (const name of ["from", "to", "around", "rows"]) query.delete(name);
  } else {
    if (key) {
      query.delete("around");
      query.set("from", rfc3339(change[key]));
      query.set("to", rfc3339(change[key.replace("[0]", "[1]")]));
    }
    if (place.dataset.chart === "pages" && "yaxis.range[0]" in change) {
      const pages = [change["yaxis.range[0]"], change["yaxis.range[1]"]].map(Number).sort((a, b) => a - b);
      query.set("rows", `${Math.max(Math.round(pages[0]), 0)}-${Math.max(Math.round(pages[1]), 0)}`);
    }
  }
  if (query.toString() === new URLSearchParams(location.search).toString()) return;
  for (const name of ["before", "after"]) query.delete(name);
  // As the server writes addresses, so that a view has one.
  show(`${location.pathname}${query.size ? `?${query}` : ""}`.replaceAll("%3A", ":"));
}

// A drawing of the page is taken away with the colours that its style sheet gives it.
const DRAWN = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "font", "text-anchor"];
async function takeDrawing(drawing, kind) {
  const copy = drawing.cloneNode(true);
  const parts = [drawing, ...drawing.querySelectorAll("*")], copies = [copy, ...copy.querySelectorAll("*")];
  parts.forEach((part, at) => {
    const style = getComputedStyle(part);
    for (const name of DRAWN) copies[at].style.setProperty(name, style.getPropertyValue(name));
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.style.background = getComputedStyle(document.body).backgroundColor;
  for (const link of copy.querySelectorAll("a")) link.removeAttribute("href"); // an address of this console alone
  const text = new XMLSerializer().serializeToString(copy);
  if (kind === "svg") { takeAway(new Blob([text], { type: "image/svg+xml" }), "svg"); return; }
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * drawing.clientWidth, 2 * drawing.clientHeight];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => takeAway(blob, "png"), "image/png");
}
function takeAway(blob, kind) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `kvwitness-lineage.${kind}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-image]");
  const place = button && document.getElementById(button.dataset.chart);
  if (place instanceof SVGElement) { takeDrawing(place, button.dataset.image); return; }
  if (!place?.dataset.ready) return;
  const size = { width: place.clientWidth, height: place.clientHeight, scale: button.dataset.image === "png" ? 2 : 1 };
  Plotly.downloadImage(place, { format: button.dataset.image, filename: `kvwitness-${place.dataset.chart}`, ...size });
});

addEventListener("DOMContentLoaded", drawAll);
document.addEventListener("kvwitness:refreshed", drawAll);
darkSystem.addEventListener("change", drawAll);
document.addEventListener("kvwitness:theme", drawAll);
