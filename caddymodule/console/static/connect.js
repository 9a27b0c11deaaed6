// The page for people with only an API key. The key is in a variable of this script, and nowhere else: it goes into
// the header of requests to the API, and into the snippets when a button is pressed.
(() => {
  "use strict";

  const at = (part) => document.querySelector(`[data-connect="${part}"]`);
  const [form, fault, status, result, reveal, snippets] = ["form", "fault", "status", "result", "reveal", "snippets"].map(at);
  const { api, placeholder } = form.dataset;
  const field = document.getElementById("key");
  const select = document.getElementById("model");
  const gone = "The gateway cannot be reached. Check your connection and try again.";
  const unreachable = api
    ? `The API at ${api} cannot be reached, or does not allow this page to call it: its operator can add ${location.origin} to cors in the gateway’s configuration.`
    : gone;
  const number = (n) => n.toLocaleString("en").replaceAll(",", "\u202f"); // as on all pages
  const count = (n, unit) => `${number(n)} ${unit}${n === 1 ? "" : "s"}`;
  let key = "", models = [], shown = false, turn = 0;

  const ask = async (path) => {
    const response = await fetch(api + path, {
      headers: { Authorization: "Bearer " + key }, credentials: "omit", cache: "no-store", redirect: "error", referrerPolicy: "no-referrer",
    }).catch(() => { throw new Error(unreachable); });
    const body = await response.json().catch(() => null);
    if (response.ok && body?.data) return body.data;
    throw new Error(body?.error?.message ?? (response.status >= 500
      ? `The gateway answered with status ${response.status}. Try again later.`
      : `The API is not at this address (status ${response.status}). Open this page at the address of the gateway.`));
  };

  const element = (tag, content, properties = {}) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(content);
    return made;
  };
  const time = (iso) => {
    const made = element("time", new Date(iso).toLocaleString("en"), { dateTime: iso });
    made.dataset.ago = ""; // console.js keeps its text up to date
    return made;
  };
  const fill = (table, rows) => {
    const titles = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    table.hidden = !rows.length;
    table.tBodies[0].replaceChildren(...rows.map((cells) => {
      const row = document.createElement("tr");
      row.append(...cells.map((content) => element("td", content)));
      [...row.cells].forEach((cell, i) => { cell.dataset.label = titles[i]; });
      return row;
    }));
  };

  const describe = (about) => {
    at("title").textContent = `Key ${about.label}`;
    const facts = {
      "Key": about.shown, "Allowed models": about.scope, "Expires": about.expires_at ? time(about.expires_at) : "never",
      "Today (UTC)": `${count(about.usage_daily, "token")}, ${count(about.requests_daily, "request")}`,
      "This month": `${count(about.usage_monthly, "token")}, ${count(about.requests_monthly, "request")}`,
      "At once": about.concurrency ? count(about.concurrency, "request") : "no limit",
      "Longest answer": about.max_output_tokens ? count(about.max_output_tokens, "token") : "no limit",
    };
    at("facts").replaceChildren(...Object.entries(facts).map(([name, value]) => {
      const fact = element("div", element("dt", name));
      fact.append(element("dd", value));
      return fact;
    }));
    fill(at("limits"), about.limits.map(({ limit, of, max, used, resets_at: resets }) => {
      const name = limit.replaceAll("_", " ");
      const meter = element("meter", "", { max, value: used });
      meter.setAttribute("aria-label", name);
      const use = element("span", meter);
      use.append(` ${number(used)}\u00a0of\u00a0${number(max)}`);
      return [of === "account" ? `${name}, of the account` : name, use, used ? time(resets) : ""];
    }));
  };

  const text = (m) => m.state.replaceAll("_", " ");
  const works = (m) => ["available", "slow", "cuts_prompts", "degraded"].includes(m.state);
  const badge = (m) => element("span", text(m), {
    className: `badge badge-${m.state === "available" ? "ok" : works(m) ? "warn" : m.state === "offline" ? "off" : "bad"}`,
  });

  const list = () => {
    fill(at("models"), models.map((m) => [m.id, badge(m), m.kind, m.context_length ? count(m.context_length, "token") : "not known"]));
    at("none").hidden = models.length > 0;
    at("setup").hidden = !models.length;
    select.replaceChildren(...models.map((m) => new Option(works(m) ? m.id : `${m.id} (${text(m)})`, m.id)));
  };

  const mark = () => {
    reveal.textContent = shown ? "Hide my key" : "Show with my key";
    snippets.querySelectorAll("code").forEach((code) => {
      code.textContent = code.textContent.replaceAll(...(shown ? [placeholder, key] : [key, placeholder]));
    });
  };

  // The gateway writes the snippets, with a placeholder for the key.
  const load = async () => {
    const mine = ++turn, { id, kind, context_length: window = 0 } = models[select.selectedIndex];
    const response = await fetch("/console/connect?" + new URLSearchParams({ model: id, kind, window }), { credentials: "omit" })
      .catch(() => null);
    const text = await response?.text().catch(() => null);
    if (mine !== turn) return;
    const open = snippets.querySelector("input:checked")?.id;
    snippets.replaceChildren(); // they may be another model's
    if (text == null) throw new Error(gone);
    if (!response.ok) throw new Error(`The gateway did not write the snippets (status ${response.status}). Reload the page.`);
    const page = new DOMParser().parseFromString(text, "text/html");
    snippets.append(...page.querySelector('[data-connect="snippets"]').childNodes);
    snippets.querySelectorAll("button[data-copy]").forEach((button) => button.setAttribute("aria-live", "polite"));
    if (open && document.getElementById(open)) document.getElementById(open).checked = true;
    mark();
  };

  const forget = () => {
    turn++;
    [key, models, shown, field.value, status.textContent] = ["", [], false, "", ""];
    [snippets, select, at("facts"), at("limits").tBodies[0], at("models").tBodies[0]].forEach((part) => part.replaceChildren());
    [result.hidden, fault.hidden, form.hidden] = [true, true, false];
  };

  const begin = async () => {
    const mine = ++turn;
    key = field.value.trim();
    if (!/^[!-~]{1,512}$/.test(key)) throw new Error("This is not an API key: it has other characters than letters, digits and hyphens, or more than 512. Copy it again.");
    status.textContent = "Asking the gateway…";
    const about = await ask("/v1/key");
    const found = mine === turn ? await ask("/v1/models") : [];
    if (mine !== turn) return; // the person has left the page
    const small = (m) => m.context_length > 0 && m.context_length < form.dataset.window;
    models = found.sort((a, b) => works(b) - works(a) || small(a) - small(b));
    describe(about);
    list();
    [field.value, result.hidden, form.hidden] = ["", false, true];
    status.textContent = `This key may use ${count(models.length, "model")}.`;
    at("title").focus();
    if (models.length) await load();
  };

  const attempt = async (act) => {
    fault.hidden = true;
    try {
      await act();
    } catch (error) {
      [fault.textContent, fault.hidden, status.textContent] = [error.message, false, ""];
    }
  };

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const send = form.querySelector("button");
    send.disabled = true;
    await attempt(begin);
    send.disabled = false;
  });
  select.addEventListener("change", () => attempt(load));
  reveal.addEventListener("click", () => { shown = !shown; mark(); });
  at("forget").addEventListener("click", () => { forget(); field.focus(); });
  addEventListener("pagehide", forget); // the browser may keep the page for its back button
  form.hidden = false;
  field.focus();
})();
