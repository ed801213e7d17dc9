// Keeps the page of a request up to date: parts arrive as finished HTML, escaped by the server.
"use strict";
(() => {
  const root = document.querySelector("[data-events]");
  const offset = root ? Date.parse(root.dataset.now) - Date.now() : 0;

  const duration = (seconds) => {
    if (seconds < 60) return `${Math.floor(seconds)} s`;
    const minutes = Math.floor(seconds / 60);
    if (minutes < 60) return `${minutes} min ${String(Math.floor(seconds % 60)).padStart(2, "0")} s`;
    const hours = Math.floor(minutes / 60);
    return hours < 48 ? `${hours} h ${String(minutes % 60).padStart(2, "0")} min` : `${Math.floor(hours / 24)} days`;
  };
  const tick = () => {
    for (const element of document.querySelectorAll("[data-since]")) {
      const text = duration(Math.max(0, (Date.now() + offset - Date.parse(element.dataset.since)) / 1000));
      if (element.textContent !== text) element.textContent = text;
    }
  };
  const toEnd = (log) => { if (log) log.scrollTop = log.scrollHeight; };
  toEnd(document.querySelector(".log"));
  if (!root) return;

  const light = document.querySelector(".live");
  const say = document.querySelector("[data-say]");
  const shown = new Map();
  let seen = root.dataset.seen;

  const show = (name, html) => {
    const part = document.querySelector(`[data-part="${name}"]`);
    if (!part || shown.get(name) === html) return;
    shown.set(name, html);
    const log = part.querySelector(".log");
    const follow = !log || log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    const top = log ? log.scrollTop : 0;
    const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const focusedLog = log !== null && document.activeElement === log;
    part.replaceChildren(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
    const now = part.querySelector(".log");
    if (now && follow) toEnd(now);
    else if (now) now.scrollTop = top;
    if (focusedLog) now.focus();
    else if (focused) part.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  };
  const mark = (state, text) => { light.className = `live ${state}`; light.textContent = text; };

  const connect = () => {
    const source = new EventSource(`${root.dataset.events}?seen=${encodeURIComponent(seen)}`);
    source.addEventListener("open", () => mark("on", "live"));
    source.addEventListener("update", (event) => {
      seen = event.lastEventId;
      const before = document.querySelector("[data-state]")?.dataset.state;
      for (const [name, html] of Object.entries(JSON.parse(event.data))) show(name, html);
      const now = document.querySelector("[data-state]")?.dataset.state;
      if (now !== before) {
        say.textContent = `The request is now: ${now}`;
        document.title = document.title.replace(/^.*? · /, `${now} · `);
      }
      tick();
    });
    source.addEventListener("end", () => { source.close(); mark("", "ended"); });
    source.addEventListener("error", () => {
      mark("off", "connecting again");
      // the browser tries again by itself, but not after an answer that is no stream
      if (source.readyState === EventSource.CLOSED) setTimeout(connect, 10000);
    });
  };
  connect();
  tick();
  setInterval(tick, 1000);
})();
