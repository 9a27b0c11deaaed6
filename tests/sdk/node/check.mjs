// Functions of all programs. Environment: GATEWAY is the gateway's URL, and API_KEY
// the key. LIMITED_KEY allows 30 requests per minute, USED_KEY one per day. TINY is
// the public name of a real model, which replies ANSWER, calls get_weather if there
// are tools, and replies DONE to their results. The argument is the upstream:
// scripted or llama.
import assert from "node:assert/strict";

export const { GATEWAY: gateway, API_KEY: apiKey, TINY: tiny, ANSWER: answer, DONE: done } = process.env;
const { LIMITED_KEY: limitedKey, USED_KEY: usedKey } = process.env;
export const scripted = process.argv[2] === "scripted";

// check runs one check. The others run even if it fails.
export async function check(name, run) {
  try {
    await run();
  } catch (e) {
    process.exitCode = 1;
    console.error(`FAILED ${name}: ${e.stack}`);
  }
}

// fails checks the class of an error and some of its members.
export async function fails(call, type, members) {
  const e = await call().then(() => assert.fail("there was no error"), (e) => e);
  assert.ok(e instanceof type, `${e.constructor.name}, not ${type.name}: ${e.stack}`);
  for (const [name, value] of Object.entries(members)) {
    if (value instanceof RegExp) assert.match(String(e[name]), value);
    else assert.deepEqual(e[name], value, `${name} of ${e}`);
  }
}

// degrees returns the result of the tool.
export const degrees = { Paris: "21", Tokyo: "25" };

// schema is the schema of the tool's parameters.
export const schema = {
  type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false,
};

// results is the scripted model's answer after the calls of the tool.
export const results = "Results: 21, 25";

// pixel is an image.
export const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

// limits checks the behavior of a client at the limits of its key. connect returns a
// client with a key, a number of retries and a fetch function; send sends a request.
export async function limits(connect, send, error, rate, quota) {
  const patient = connect(limitedKey, 3, fetch), hasty = connect(limitedKey, 0, fetch);
  const refused = async () => {
    for (;;) await send(hasty);
  };
  await fails(refused, error, rate);
  await send(patient); // retries after the time in the refusal

  let fetched = 0;
  const used = connect(usedKey, 3, (...args) => (fetched++, fetch(...args)));
  await send(used);
  await fails(() => send(used), error, quota);
  assert.equal(fetched, 2, "it tries again although its quota is used up");
}
