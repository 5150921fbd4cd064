// Replaces the parts of a page that are marked data-live every few seconds, while the tab is visible.
// Pages work without it. What has the focus keeps it, and the page does not scroll.
"use strict";

(() => {
  const main = document.querySelector("main[data-refresh]");
  if (!main) return;
  const interval = Number(main.dataset.refresh) * 1000;
  const stale = document.getElementById("stale");
  let timer = 0;
  let ended = false;  // the page says that nothing changes any more

  const update = (fresh) => {
    for (const old of document.querySelectorAll("[data-live]")) {
      const made = fresh.getElementById(old.id);
      if (!made || made.innerHTML === old.innerHTML) continue;
      const focused = old.contains(document.activeElement) ? document.activeElement : null;
      const same = focused && (focused.id ? `#${CSS.escape(focused.id)}` : focused.getAttribute("href") && `a[href="${CSS.escape(focused.getAttribute("href"))}"]`);
      if (focused && !same && focused !== old && !focused.classList.contains("scroll")) continue;
      const scrolled = [...old.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
      const place = focused && focused.classList.contains("scroll") ? [...old.querySelectorAll(".scroll")].indexOf(focused) : -1;
      const [left, top] = [window.scrollX, window.scrollY];
      old.replaceChildren(...made.childNodes);
      old.querySelectorAll(".scroll").forEach((each, number) => { each.scrollLeft = scrolled[number] || 0; });
      const next = place >= 0 ? old.querySelectorAll(".scroll")[place] : same && old.querySelector(same);
      if (next) next.focus({ preventScroll: true });
      window.scrollTo(left, top);
    }
  };

  const refresh = async () => {
    try {
      const address = new URL(location.href);
      address.searchParams.delete("notice");
      const response = await fetch(address, { credentials: "same-origin", redirect: "error" });
      if (!response.ok) throw new Error(String(response.status));
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
      update(fresh);
      stale.hidden = true;
      if (!fresh.querySelector("main[data-refresh]")) { ended = true; return; }
    } catch {
      stale.hidden = false;
    }
    plan();
  };

  const plan = () => {
    clearTimeout(timer);
    if (!document.hidden && !ended) timer = setTimeout(refresh, interval);
  };

  document.addEventListener("visibilitychange", () => { if (document.hidden) clearTimeout(timer); else if (!ended) refresh(); });
  plan();
})();
