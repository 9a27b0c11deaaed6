// The playground of a model: the answer appears as it is written. Without this script, the form
// returns the page with the whole answer.
(() => {
  "use strict";

  const form = document.querySelector("form[data-play]");
  const result = document.querySelector("[data-play-result]");
  if (!form || !result || !window.ReadableStream) return;
  const send = form.querySelector("button:not([type])");
  const stop = form.querySelector("[data-play-stop]");
  const pace = form.querySelector("[data-play-pace]");
  let running = null;

  const add = (tag, className, text) => {
    const element = document.createElement(tag);
    element.className = className;
    element.textContent = text;
    result.append(element);
    return element;
  };
  const fail = (text) => add("p", "notice notice-bad", text).setAttribute("role", "alert");

  // lines calls each with the objects of the answer.
  const lines = async (response, each) => {
    let rest = "";
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      parts.filter(Boolean).forEach((line) => each(JSON.parse(line)));
    }
  };

  const play = async () => {
    const begin = performance.now();
    let first = 0, pieces = 0, thinking = null, answer = null, ended = false;
    const speed = () => pieces > 1 ? `, ${((pieces - 1) / Math.max(0.001, (performance.now() - first) / 1000)).toFixed(1)} tokens/s` : "";
    const response = await fetch(form.action, {
      method: "POST", body: new URLSearchParams(new FormData(form)), headers: { Accept: "application/x-ndjson" }, signal: running.signal,
    });
    if (!(response.headers.get("Content-Type") ?? "").startsWith("application/x-ndjson")) {
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      if (response.redirected) location.assign(response.url); // the session has ended
      fail(page.querySelector(".notice-bad, main p")?.textContent ?? `The gateway answered ${response.status}.`);
      return;
    }
    await lines(response, (part) => {
      if (part.done) {
        ended = true;
        const d = part.done;
        if (d.error) fail(d.error[0].toUpperCase() + d.error.slice(1) + ".");
        if (d.cut) add("p", "muted", "The answer was cut at the token limit.");
        pace.textContent = d.tokens ? `${d.tokens} tokens${d.tokens_per_second ? `, ${d.tokens_per_second.toFixed(1)} tokens/s` : ""}, first token after ${Math.round(d.first_token_ms)} ms, by ${d.connector}` : "";
        return;
      }
      first ||= performance.now();
      pieces++;
      if (part.thinking) {
        if (!thinking) {
          const details = add("details", "", "");
          details.append(Object.assign(document.createElement("summary"), { textContent: "Thinking" }));
          thinking = document.createElement("blockquote");
          thinking.className = "muted";
          details.append(thinking);
        }
        thinking.append(part.thinking);
      }
      if (part.text) (answer ??= add("blockquote", "", "")).append(part.text);
      pace.textContent = `First token after ${Math.round(first - begin)} ms${speed()}`;
    });
    if (!ended) fail("The connection was lost before the answer was complete.");
  };

  // Before the listeners of other scripts: the page stays.
  document.addEventListener("submit", async (event) => {
    if (event.target !== form) return;
    event.preventDefault();
    if (running) return;
    running = new AbortController();
    result.replaceChildren();
    result.setAttribute("aria-live", "polite");
    result.setAttribute("aria-busy", "true"); // it is read out when it is complete
    [send.disabled, stop.hidden, pace.textContent] = [true, false, "Waiting for the model…"];
    try {
      await play();
    } catch (error) {
      if (error.name === "AbortError") pace.textContent += ", stopped";
      else fail("The gateway cannot be reached.");
    } finally {
      running = null;
      [send.disabled, stop.hidden] = [false, true];
      result.removeAttribute("aria-busy");
    }
  }, true);
  stop.addEventListener("click", () => running?.abort());
})();
