// Enhancements of the console's pages: the secret of a link moves from the URL
// into its form, countdowns run, times are shown as ages and in the browser's zone,
// buttons copy, and a page whose session has ended leads to the sign-in. No page needs them.
(() => {
  "use strict";

  // The secret of a one-time link. It leaves the address bar and the history.
  const field = document.querySelector("input[data-fragment]");
  const takeLink = () => {
    if (location.hash.length > 1) {
      field.value = location.hash.slice(1);
      history.replaceState(null, "", location.pathname + location.search);
    }
    if (field.value) {
      field.closest(".field").hidden = true;
      field.form.querySelector(".field:not([hidden]) input")?.focus();
    }
  };
  if (field) {
    takeLink();
    addEventListener("hashchange", takeLink); // another link, pasted over the address of this page
  }

  // The server needs the zone for the hours of charts, and for today.
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  document.cookie = `postern-zone=${zone}; path=/console; max-age=31536000; samesite=strict${location.protocol === "https:" ? "; secure" : ""}`;
  document.querySelectorAll("[data-zone]").forEach((text) => { text.textContent = `Times are in ${zone}.`; });

  const units = [["day", 86400], ["hour", 3600], ["minute", 60]];
  const ages = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  const set = (element, text) => { if (element.textContent !== text) element.textContent = text; };

  const show = (time) => {
    const at = Date.parse(time.dateTime);
    if (Number.isNaN(at)) return;
    const seconds = Math.round((at - Date.now()) / 1000);
    if (time.hasAttribute("data-expires")) {
      time.classList.toggle("soon", seconds < 120);
      set(time, seconds <= 0 ? "expired" : `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")} left`);
      return;
    }
    const then = new Date(at), now = new Date(), clock = time.dataset.clock;
    const day = { day: "numeric", month: "short", year: then.getFullYear() === now.getFullYear() ? undefined : "numeric" };
    if (clock !== undefined || time.hasAttribute("data-moment")) {
      const parts = { hour: "2-digit", minute: "2-digit", second: clock === undefined ? undefined : "2-digit", fractionalSecondDigits: Number(clock) || undefined };
      set(time, then.toLocaleString("en-GB", { ...(then.toDateString() === now.toDateString() ? {} : day), ...parts }));
      return;
    }
    const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= size) ?? [];
    if (unit === "day" && -seconds > 30 * size) set(time, then.toLocaleDateString("en-GB", day));
    else set(time, unit ? ages.format(Math.round(seconds / size), unit) : seconds > 2 ? "in a moment" : "just now"); // clocks differ
  };
  const showAll = () => document.querySelectorAll("time[data-ago], time[data-clock], time[data-moment], time[data-expires]").forEach(show);
  showAll();
  setInterval(showAll, 1000);

  // Copies the text of a button. Over plain HTTP browsers offer only the old command. If
  // that fails too, the text is selected.
  const select = (element) => {
    const range = document.createRange();
    range.selectNodeContents(element);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    const source = button && document.getElementById(button.dataset.copy);
    if (!source) return;
    let label = "Copied";
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch {
      select(source);
      if (!document.execCommand("copy")) label = "Selected";
    }
    button.textContent = label;
    button.classList.add("copied");
    setTimeout(() => {
      button.textContent = "Copy";
      button.classList.remove("copied");
    }, 2000);
  });
  // Screen readers announce the new label of a button.
  document.querySelectorAll("button[data-copy]").forEach((button) => button.setAttribute("aria-live", "polite"));

  // A submitted form navigates by itself, including the one that ends the session. A stream
  // that is opened then would be refused, and redirect the page to the sign-in.
  let sent = false;
  document.addEventListener("submit", (event) => {
    if (event.defaultPrevented) return;
    sent = true;
    const live = document.getElementById("live");
    live?.dispatchEvent(new Event("htmx:abort"));
    live?.remove();
  });
  const signIn = () => sent || location.assign("/console/sign-in?next=" + encodeURIComponent(location.pathname + location.search));
  document.addEventListener("session-ended", signIn);
  document.addEventListener("htmx:sse:error", (event) => {
    if (event.detail?.status === 401) signIn();
  });
  document.addEventListener("htmx:after:swap", showAll);

  // A live search updates the address bar, like one by the button: it can be
  // reloaded, bookmarked and shared.
  document.addEventListener("htmx:after:swap", (event) => {
    const form = event.detail?.ctx?.sourceElement;
    if (!form?.matches?.("form.search")) return;
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    history.replaceState(null, "", location.pathname + (query.size ? "?" + query : ""));
  });

  // Opened details stay open when their region is rendered again, and attributes that
  // this script sets do not count as differences.
  window.htmx?.registerExtension("postern", {
    htmx_before_morph_attr: (element, { attrName }) => {
      if (attrName === "open" && element instanceof HTMLDetailsElement) return false;
      if (attrName === "class" && element instanceof HTMLTimeElement) return false;
    },
  });
})();
