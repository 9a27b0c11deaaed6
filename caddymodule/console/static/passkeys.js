// Passkeys: the browser provides a credential, and the gateway verifies it. The
// attribute data-passkey selects the ceremony.
(() => {
  "use strict";

  const block = document.querySelector("[data-passkey]");
  // Only secure pages have passkeys, and they are bound to a host name.
  if (!block || !window.PublicKeyCredential || /^[\d.]+$|^\[/.test(location.hostname)) return;
  const button = block.querySelector("button");
  const fault = block.querySelector(".notice");
  block.hidden = false;

  const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
  const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");

  const post = async (path, body) => {
    const answer = await fetch(path, {
      method: "POST", credentials: "same-origin", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    });
    const value = await answer.json().catch(() => ({}));
    if (answer.ok) return value;
    const refused = new Error(value.error || "Unexpected response from the gateway. Reload the page.");
    throw Object.assign(refused, { code: value.code });
  };

  const described = (list) => (list ?? []).map((one) => ({ ...one, id: bytes(one.id) }));

  const make = async ({ publicKey }) => {
    const credential = await navigator.credentials.create({ publicKey: {
      ...publicKey, challenge: bytes(publicKey.challenge), user: { ...publicKey.user, id: bytes(publicKey.user.id) },
      excludeCredentials: described(publicKey.excludeCredentials),
    } });
    const { response } = credential;
    return {
      id: credential.id, rawId: text(credential.rawId), type: credential.type,
      authenticatorAttachment: credential.authenticatorAttachment ?? undefined,
      clientExtensionResults: credential.getClientExtensionResults(),
      response: {
        clientDataJSON: text(response.clientDataJSON), attestationObject: text(response.attestationObject),
        transports: response.getTransports?.() ?? [],
      },
    };
  };

  const use = async ({ publicKey }) => {
    const credential = await navigator.credentials.get({ publicKey: {
      ...publicKey, challenge: bytes(publicKey.challenge), allowCredentials: described(publicKey.allowCredentials),
    } });
    const { response } = credential;
    return {
      id: credential.id, rawId: text(credential.rawId), type: credential.type,
      authenticatorAttachment: credential.authenticatorAttachment ?? undefined,
      clientExtensionResults: credential.getClientExtensionResults(),
      response: {
        clientDataJSON: text(response.clientDataJSON), authenticatorData: text(response.authenticatorData),
        signature: text(response.signature), userHandle: response.userHandle ? text(response.userHandle) : undefined,
      },
    };
  };

  const go = ({ location: to }) => location.assign(to);
  const ceremonies = {
    "sign-in": { path: "/console/sign-in/passkey", ask: use, more: () => ({ next: block.dataset.next }), then: go },
    "add": { path: "/console/settings/passkeys", ask: make, more: () => ({ name: block.querySelector("input").value }), then: go },
    // The form repeats the original request. Its password is neither needed nor sent.
    "confirm": { path: "/console/confirm/passkey", ask: use, more: () => ({}), then: () => {
      const form = document.getElementById("confirm");
      form.elements["confirm-password"]?.remove();
      form.submit();
    } },
  };
  const current = ceremonies[block.dataset.passkey];

  button.addEventListener("click", async () => {
    button.disabled = true;
    fault.hidden = true;
    try {
      const { options, ceremony } = await post(current.path + "/begin", {});
      const response = await current.ask(options);
      current.then(await post(current.path, { ceremony, response, ...current.more() }));
    } catch (error) {
      if (error.code === "confirmation_required") {
        const back = "/console/settings?" + new URLSearchParams({ passkey: current.more().name });
        location.assign("/console/confirm?" + new URLSearchParams({ next: back }));
        return;
      }
      fault.textContent = {
        NotAllowedError: "No passkey was used: it was canceled, or took too long.",
        InvalidStateError: "You already have a passkey on this device.",
        SecurityError: "The browser does not allow passkeys for this address.",
      }[error.name] ?? error.message;
      fault.hidden = false;
      button.disabled = false;
    }
  });
})();
