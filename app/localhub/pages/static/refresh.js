// Shows what others do without a reload: fetches the page every two seconds and puts its changed parts in place.
// Nothing depends on it; a person who is writing or choosing is left alone.
"use strict";

const EVERY_MS = 2000;

function busy(live) {
  const active = document.activeElement;
  if (active && live.contains(active) && /^(TEXTAREA|INPUT|SELECT)$/.test(active.tagName)) return true;
  if ([...live.querySelectorAll("textarea, input:not([type=hidden])")].some((field) => field.value !== field.defaultValue)) return true;
  return live.querySelector("details.smile[open], details.review[open]") !== null;
}

let last = null;

async function refresh() {
  const live = document.getElementById("live");
  if (document.hidden || busy(live)) return;
  const reply = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!reply.ok) return;
  const html = await reply.text();
  if (html === last) return;
  const fresh = new DOMParser().parseFromString(html, "text/html").getElementById("live");
  if (last !== null && fresh && !busy(live)) {
    const open = [...live.querySelectorAll("details")].map((item) => item.open);
    live.innerHTML = fresh.innerHTML;
    [...live.querySelectorAll("details")].forEach((item, index) => {
      if (index < open.length) item.open = open[index];
    });
  }
  last = html;
}

setInterval(() => refresh().catch(() => {}), EVERY_MS);
refresh().catch(() => {});
