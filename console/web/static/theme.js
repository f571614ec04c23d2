// The theme that was chosen in this browser, before anything is drawn; none = that of the system.
"use strict";

const THEMES = ["dark", "light", "contrast"];
const darkSystem = matchMedia("(prefers-color-scheme: dark)");
function keptTheme() {
  try { return localStorage.getItem("kvwitness-theme"); } catch { return null; }
}
function themeNow() {
  const chosen = document.documentElement.dataset.theme;
  if (matchMedia("(forced-colors: active)").matches) return "light";
  return THEMES.includes(chosen) ? chosen : darkSystem.matches ? "dark" : "light";
}
function chooseTheme(name) {
  if (THEMES.includes(name)) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  try {
    if (THEMES.includes(name)) localStorage.setItem("kvwitness-theme", name);
    else localStorage.removeItem("kvwitness-theme");
  } catch { /* it holds for this page */ }
  document.dispatchEvent(new Event("kvwitness:theme"));
}
chooseTheme(keptTheme());
// Another tab of this browser chose one.
addEventListener("storage", (event) => { if (event.key === "kvwitness-theme") chooseTheme(event.newValue); });
