// Loads the live part of a page anew every two seconds, and leaves scrolling, open details and what is selected as they are.
"use strict";
(() => {
  const live = document.querySelector("[data-live]");
  if (!live) return;
  const EVERY = 2000;
  const pause = document.getElementById("pause");
  const stale = document.getElementById("stale");
  let paused = false;
  let last = live.innerHTML;

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on" : "Pause";
  });

  // Somebody is reading or writing here.
  const isUsed = () => {
    const selection = document.getSelection();
    const selected = selection && !selection.isCollapsed && live.contains(selection.anchorNode);
    const focused = document.activeElement;
    return selected || (live.contains(focused) && focused.matches("input, button"));
  };

  const put = (next) => {
    const scrolled = [...live.querySelectorAll(".scroll, pre")].map((area) => [area.scrollLeft, area.scrollTop]);
    const open = [...live.querySelectorAll("details[open]")].map((details) => details.id);
    const focused = document.activeElement && document.activeElement.getAttribute("href");
    const [left, top] = [window.scrollX, window.scrollY];
    live.replaceChildren(...next.childNodes);
    open.forEach((id) => { const details = document.getElementById(id); if (details) details.open = true; });
    [...live.querySelectorAll(".scroll, pre")].forEach((area, at) => {
      if (scrolled[at]) [area.scrollLeft, area.scrollTop] = scrolled[at];
    });
    if (focused && !document.activeElement.matches("a")) {
      const again = [...live.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused);
      if (again) again.focus({ preventScroll: true });
    }
    window.scrollTo({ left, top, behavior: "instant" });
  };

  const load = async () => {
    if (paused || document.hidden || isUsed()) return;
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(10000) });
    // A statement that was forgotten, or a login that is asked for anew, is for the reader to see.
    if (answer.status === 404 || answer.status === 401) return location.reload();
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const next = page.querySelector("main > .content");
    if (!next || paused || isUsed()) return;
    if (next.innerHTML !== last) { last = next.innerHTML; put(next); }
    // What has ended does not change any more.
    if (!next.hasAttribute("data-live")) { clearTimeout(timer); timer = null; pause.hidden = true; }
  };

  let timer = 0;
  const again = async () => {
    try { await load(); stale.hidden = true; } catch { stale.hidden = false; }
    if (timer !== null) timer = setTimeout(again, EVERY);
  };
  timer = setTimeout(again, EVERY);
})();
