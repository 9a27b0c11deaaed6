// Uses the gateway with the official Anthropic SDK, like any program.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";
import { answer, apiKey, check, degrees, done, fails, gateway, limits, pixel, results, schema, scripted, tiny } from "./check.mjs";

const client = new Anthropic({ baseURL: gateway, apiKey, maxRetries: 0 });
const stranger = new Anthropic({ baseURL: gateway, apiKey: "sk-svc-wrong", maxRetries: 0 });
const base = { max_tokens: 300, temperature: 0, messages: [{ role: "user", content: "hello" }] };
const tools = [{ name: "get_weather", description: "the weather now", input_schema: schema }];

const textOf = (message) => message.content.map((block) => block.text ?? "").join("");

// both sends a request whole and streamed; the SDK must assemble the same
// message from the stream.
async function both(body, look) {
  for (const ask of [(b) => client.messages.create(b), (b) => client.messages.stream(b).finalMessage()]) {
    await look(await ask({ ...base, ...body }));
  }
}

async function models() {
  const names = [];
  for await (const m of client.models.list({ limit: 2 })) names.push(m.id);
  assert.deepEqual(names, [...names].sort());
  const name = scripted ? "hello" : tiny;
  assert.ok(names.includes(name), names);
  const got = await client.models.retrieve(name);
  assert.deepEqual([got.id, got.type, got.display_name], [name, "model", name]);
}

async function messages(model, text, tokens) {
  await both({ model }, (got) => {
    assert.deepEqual([got.model, got.role, got.type, got.stop_reason, got.stop_sequence], [model, "assistant", "message", "end_turn", null]);
    assert.deepEqual(got.content.map((b) => [b.type, b.text]), [["text", text]]);
    assert.equal(got.usage.output_tokens, tokens);
    assert.match(got.id, /^msg_/);
  });
  const { request_id: id } = await client.messages.create({ ...base, model }).withResponse();
  assert.match(id, /^req_/);
  const seen = [];
  for await (const event of await client.messages.create({ ...base, model, stream: true })) seen.push(event);
  assert.deepEqual([seen[0].type, seen.at(-1).type], ["message_start", "message_stop"]);
  assert.equal(seen.map((e) => e.delta?.text ?? "").join(""), text);
}

// A tool loop, whole and streamed.
async function toolLoop(model, text, cities) {
  await both({ model, tools }, async (first) => {
    assert.equal(first.stop_reason, "tool_use");
    const calls = first.content.filter((b) => b.type === "tool_use");
    assert.deepEqual(calls.map((c) => [c.name, c.input]), cities.map((city) => ["get_weather", { city }]));
    const history = [...base.messages, { role: "assistant", content: first.content }, {
      role: "user", content: calls.map((c) => ({ type: "tool_result", tool_use_id: c.id, content: degrees[c.input.city] })),
    }];
    await both({ model, tools, messages: history }, (second) => {
      assert.deepEqual([textOf(second), second.stop_reason], [text, "end_turn"]);
    });
  });
}

async function images() {
  const source = { type: "base64", media_type: "image/png", data: pixel };
  const got = await client.messages.create({
    ...base, model: "echo", tools, system: [{ type: "text", text: "be brief", cache_control: { type: "ephemeral" } }],
    messages: [
      { role: "user", content: [{ type: "image", source }, { type: "text", text: "and in Paris?" }] },
      { role: "assistant", content: [{ type: "tool_use", id: "toolu_1", name: "get_weather", input: { city: "Paris" } }] },
      { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_1", content: [{ type: "text", text: "a chart" }, { type: "image", source }] }] },
    ],
  });
  const sent = JSON.parse(textOf(got)).messages;
  assert.deepEqual(sent.map((m) => m.role), ["system", "user", "assistant", "tool", "user"]);
  const url = `data:image/png;base64,${pixel}`;
  assert.deepEqual([sent[1].content[0].image_url.url, sent[1].content[1].text], [url, "and in Paris?"]);
  assert.match(sent[3].content, /^a chart/);
  assert.equal(sent[4].content.find((part) => part.type === "image_url").image_url.url, url);
}

async function thinking(model, thought, text) {
  await both({ model, thinking: { type: "enabled", budget_tokens: 2048 }, max_tokens: 4000, messages: [{ role: "user", content: "[[think]]" }] }, async (got) => {
    assert.deepEqual(got.content.map((b) => b.type), ["thinking", "text"]);
    assert.equal(got.content[0].thinking.trim(), thought);
    assert.ok(got.content[0].signature);
    assert.equal(got.content[1].text, text);
    if (!scripted) return;
    const next = await client.messages.create({ ...base, model: "echo", messages: [...base.messages, { role: "assistant", content: got.content }, ...base.messages] });
    assert.equal(JSON.parse(textOf(next)).messages[1].reasoning_content, thought);
  });
}

async function form() {
  const shape = z.object({ city: z.string(), degrees: z.number() });
  const body = { ...base, model: "form", output_config: { format: zodOutputFormat(shape) } };
  const want = { city: "Paris", degrees: 21 };
  assert.deepEqual((await client.messages.parse(body)).parsed_output, want);
  assert.deepEqual((await client.messages.stream(body).finalMessage()).parsed_output, want);
}

async function count(model) {
  const few = await client.messages.countTokens({ model, messages: base.messages });
  const many = await client.messages.countTokens({ model, tools, messages: [...base.messages, { role: "assistant", content: "Yes?" }, ...base.messages] });
  assert.ok(few.input_tokens > 0 && many.input_tokens > few.input_tokens, `${few.input_tokens}, ${many.input_tokens}`);
}

// The runner requests a thread. The gateway has none, so the runner sends the
// whole conversation.
async function runner(model, text, cities) {
  for (const stream of [false, true]) {
    const asked = [];
    const sent = []; // the conversation in each request, and the status of the answer
    const client = new Anthropic({
      baseURL: gateway, apiKey, maxRetries: 0, fetch: async (url, init) => {
        const { thread, messages } = JSON.parse(init.body);
        const answer = await fetch(url, init);
        sent.push([thread?.type ?? messages.length, answer.status]);
        return answer;
      },
    });
    const run = ({ city }) => (asked.push(city), degrees[city]);
    const loop = client.beta.messages.toolRunner({ ...base, model, stream, tools: [betaTool({ name: "get_weather", inputSchema: schema, description: "the weather", run })] });
    assert.equal(textOf(await loop.runUntilDone()), text);
    assert.deepEqual(asked, cities);
    assert.deepEqual(sent, [["create", 400], [1, 200], [3, 200]]);
  }
}

async function errors() {
  const { APIError, AuthenticationError, BadRequestError, InternalServerError, NotFoundError } = Anthropic;
  const create = (body, c = client) => () => c.messages.create({ ...base, ...body });
  const id = { requestID: /^req_/ };
  await fails(create({ model: "hello" }, stranger), AuthenticationError, { status: 401, type: "authentication_error", ...id });
  await fails(() => stranger.models.list(), AuthenticationError, { status: 401, type: "authentication_error", ...id });
  await fails(create({ model: "nosuch" }), NotFoundError, { status: 404, type: "not_found_error", ...id });
  await fails(() => client.models.retrieve("nosuch"), NotFoundError, { status: 404, type: "not_found_error" });
  await fails(() => client.messages.countTokens({ model: "nosuch", messages: base.messages }), NotFoundError, { status: 404, type: "not_found_error" });
  await fails(create({ model: "hello", messages: [] }), BadRequestError, { status: 400, type: "invalid_request_error", message: /messages: at least one/, ...id });
  await fails(create({ model: "full" }), BadRequestError, { status: 400, message: /prompt is too long: 5009 tokens > 4096 maximum/ });
  await fails(create({ model: "loading" }), InternalServerError, { status: 529, type: "overloaded_error" });
  await fails(create({ model: "offline" }), InternalServerError, { status: 503, type: "overloaded_error" });
  await fails(() => client.messages.stream({ ...base, model: "nosuch" }).finalMessage(), NotFoundError, { status: 404 });
  await fails(() => client.messages.stream({ ...base, model: "cut" }).finalMessage(), APIError, { type: "api_error" });
}

async function limited() {
  const connect = (apiKey, maxRetries, fetch) => new Anthropic({ baseURL: gateway, apiKey, maxRetries, fetch });
  const send = (c) => c.messages.create({ ...base, model: "hello" });
  const refused = { status: 429, type: "rate_limit_error" };
  await limits(connect, send, Anthropic.RateLimitError, { ...refused, message: /try again in \ds/ }, { ...refused, message: /Quota used up.*It resets at/ });
}

await check("models", models);
if (scripted) {
  await check("limits", limited);
  await check("messages", () => messages("hello", "Hello, world.", 3));
  await check("tools", () => toolLoop("weather", results, ["Paris", "Tokyo"]));
  await check("images", images);
  await check("thinking", () => thinking("think", "Six times seven.", "Forty-two."));
  await check("structured output", form);
  await check("counting tokens", () => count("hello"));
  await check("tool runner", () => runner("weather", results, ["Paris", "Tokyo"]));
  await check("errors", errors);
} else {
  await check("messages", () => messages(tiny, answer, 38));
  await check("tools", () => toolLoop(tiny, done, ["Paris"]));
  await check("thinking", () => thinking(tiny, "The user wants something. I should ponder briefly before speaking, then give a conclusion.", "After some thought: forty-two."));
  await check("counting tokens", () => count(tiny));
  await check("tool runner", () => runner(tiny, done, ["Paris"]));
}
