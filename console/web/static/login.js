// A page that was refused comes by itself as soon as the key is mended, in another tab or by the server.
"use strict";

async function tryAgain() {
  if (document.hidden || location.pathname === "/login" || document.getElementById("token")?.value) return;
  const address = new URL(location.href);
  address.searchParams.delete("token");
  const answer = await fetch(address, { headers: { "X-Fragment": "1" }, cache: "no-store" }).catch(() => null);
  if (answer && answer.status !== 401 && answer.status !== 403) location.replace(address);
}
setInterval(tryAgain, 5000);
document.addEventListener("visibilitychange", tryAgain);
