// Uses the gateway with the official OpenAI SDK, like any program: chat completions
// and responses.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { answer, apiKey, check, degrees, done, fails, gateway, limits, pixel, results, schema, scripted, tiny } from "./check.mjs";

const baseURL = `${gateway}/v1`;
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const stranger = new OpenAI({ baseURL, apiKey: "sk-svc-wrong", maxRetries: 0 });
const messages = [{ role: "user", content: "hello" }];
const chatTool = { type: "function", function: { name: "get_weather", parameters: schema } };
const tool = { type: "function", name: "get_weather", parameters: schema, strict: true };
const form = z.object({ city: z.string(), degrees: z.number() });

async function collect(stream) {
  const list = [];
  for await (const event of stream) list.push(event);
  return list;
}

async function models() {
  const names = (await collect(client.models.list())).map((m) => m.id);
  assert.deepEqual(names, [...names].sort());
  assert.ok(names.includes(scripted ? "hello" : tiny), names);
  const name = scripted ? "hello" : tiny;
  assert.equal((await client.models.retrieve(name)).id, name);
}

async function chat(model, text, tokens) {
  const { data, request_id: id } = await client.chat.completions.create({ model, messages, temperature: 0 }).withResponse();
  assert.equal(data.choices[0].message.content, text);
  assert.equal(data.model, model);
  assert.match(id, /^req_/);
  const chunks = await collect(await client.chat.completions.create({
    model, messages, temperature: 0, stream: true, stream_options: { include_usage: true },
  }));
  assert.equal(chunks.map((c) => c.choices[0]?.delta?.content ?? "").join(""), text);
  assert.equal(chunks.find((c) => c.choices[0]?.finish_reason).choices[0].finish_reason, "stop");
  assert.equal(chunks.at(-1).usage.completion_tokens, tokens);
  const helper = client.chat.completions.stream({ model, messages, temperature: 0 });
  assert.equal((await helper.finalChatCompletion()).choices[0].message.content, text);
}

async function chatTools(model, text) {
  const function_ = { ...chatTool.function, parse: JSON.parse, function: ({ city }) => degrees[city] };
  for (const stream of [false, true]) {
    const runner = client.chat.completions.runTools({ model, messages, stream, temperature: 0, tools: [{ type: "function", function: function_ }] });
    assert.equal(await runner.finalContent(), text);
  }
}

async function chatForm() {
  const got = await client.chat.completions.parse({ model: "form", messages, response_format: zodResponseFormat(form, "form") });
  assert.deepEqual(got.choices[0].message.parsed, { city: "Paris", degrees: 21 });
}

async function chatErrors() {
  const create = (body, c = client) => () => c.chat.completions.create(body);
  await fails(() => stranger.models.list(), OpenAI.AuthenticationError, { status: 401, code: "invalid_api_key", requestID: /^req_/ });
  await fails(() => client.models.retrieve("nosuch"), OpenAI.NotFoundError, { status: 404, code: "model_not_found" });
  await fails(create({ model: "nosuch", messages }), OpenAI.NotFoundError, { status: 404, code: "model_not_found", requestID: /^req_/ });
  await fails(create({ messages }), OpenAI.BadRequestError, { status: 400, code: "missing_required_parameter" });
  await fails(create({ model: "offline", messages }), OpenAI.InternalServerError, { status: 503, code: "deployment_offline" });
  await fails(async () => collect(await client.chat.completions.create({ model: "cut", messages, stream: true })), OpenAI.APIError, {});
}

async function responses(model, text, tokens) {
  const got = await client.responses.create({ model, input: "hello", temperature: 0 });
  assert.equal(got.output_text, text);
  assert.equal(got.status, "completed");
  assert.equal(got.model, model);
  assert.equal(got.usage.output_tokens, tokens);
  assert.match(got._request_id, /^req_/);

  const events = await collect(await client.responses.create({ model, input: "hello", temperature: 0, stream: true }));
  assert.deepEqual(events.map((e) => e.sequence_number), events.map((_, i) => i));
  assert.equal(events.filter((e) => e.type === "response.output_text.delta").map((e) => e.delta).join(""), text);
  assert.equal(events.at(-1).response.usage.output_tokens, tokens);

  const helper = client.responses.stream({ model, input: "hello", temperature: 0 });
  let heard = "";
  helper.on("response.output_text.delta", (e) => (heard += e.delta));
  const final = await helper.finalResponse();
  assert.deepEqual([final.output_text, heard, final.status], [text, text, "completed"]);
}

// A tool loop, with the whole conversation or the previous response.
async function responsesTools(model, text, cities) {
  for (const stream of [false, true]) {
    for (const kept of [false, true]) {
      const ask = async (body) => {
        const request = { model, tools: [tool], temperature: 0, store: kept, ...body };
        return stream ? client.responses.stream(request).finalResponse() : client.responses.create(request);
      };
      const question = { role: "user", content: "the weather, please" };
      const first = await ask({ input: [question] });
      const calls = first.output.filter((item) => item.type === "function_call");
      assert.deepEqual(calls.map((c) => [c.name, JSON.parse(c.arguments)]), cities.map((city) => ["get_weather", { city }]));
      const outputs = calls.map((c) => ({ type: "function_call_output", call_id: c.call_id, output: degrees[JSON.parse(c.arguments).city] }));
      const second = await ask(kept ? { previous_response_id: first.id, input: outputs } : { input: [question, ...first.output, ...outputs] });
      assert.equal(second.output_text, text);
    }
  }
}

async function responsesKept() {
  const got = await client.responses.create({ model: "hello", input: "hello" });
  assert.equal((await client.responses.retrieve(got.id)).output[0].content[0].text, "Hello, world.");
  assert.equal((await collect(client.responses.inputItems.list(got.id)))[0].content[0].text, "hello");
  await client.responses.delete(got.id);
  await fails(() => client.responses.retrieve(got.id), OpenAI.NotFoundError, { status: 404 });
  await fails(() => client.responses.create({ model: "hello", input: "hello", previous_response_id: got.id }), OpenAI.BadRequestError,
    { code: "previous_response_not_found", param: "previous_response_id" });
}

async function responsesForm() {
  const body = { model: "form", input: "hello", text: { format: zodTextFormat(form, "form") } };
  assert.deepEqual((await client.responses.parse(body)).output_parsed, { city: "Paris", degrees: 21 });
  assert.deepEqual((await client.responses.stream(body).finalResponse()).output_parsed, { city: "Paris", degrees: 21 });
}

async function responsesThinking() {
  const body = { model: "think", input: "hello", include: ["reasoning.encrypted_content"], store: false };
  for (const got of [await client.responses.create(body), await client.responses.stream(body).finalResponse()]) {
    assert.deepEqual(got.output.map((item) => item.type), ["reasoning", "message"]);
    assert.equal(got.output[0].summary[0].text, "Six times seven.");
    const { output_text: sent } = await client.responses.create({ ...body, model: "echo", input: [{ role: "user", content: "hello" }, ...got.output, { role: "user", content: "and?" }] });
    assert.equal(JSON.parse(sent).messages[1].reasoning_content, "Six times seven.");
  }
}

async function responsesProbabilities() {
  const body = { model: "sure", input: "hello", include: ["message.output_text.logprobs"], top_logprobs: 1 };
  for (const got of [await client.responses.create(body), await client.responses.stream(body).finalResponse()]) {
    const { text, logprobs } = got.output[0].content[0];
    assert.equal(logprobs.map((p) => p.token).join(""), text);
    assert.deepEqual([logprobs[0].logprob, logprobs[0].bytes, logprobs[0].top_logprobs[0].logprob], [-0.5, [1], -0.5]);
  }
}

// A client gets only an opaque item for a compacted conversation. When it sends the
// item back, the model gets the content.
async function responsesCompaction() {
  const body = { model: "hello", input: [{ role: "user", content: "hello" }, { type: "compaction_trigger" }], store: false };
  for (const got of [await client.responses.create(body), await client.responses.stream(body).finalResponse()]) {
    assert.deepEqual(got.output.map((item) => item.type), ["compaction"]);
    const { output_text: sent } = await client.responses.create({ model: "echo", input: [...got.output, { role: "user", content: "and?" }] });
    assert.match(JSON.parse(sent).messages[0].content, /Hello, world\.$/);
  }
}

async function responsesImages() {
  const image_url = `data:image/png;base64,${pixel}`;
  const { output_text: sent } = await client.responses.create({
    model: "echo", instructions: "be brief",
    input: [{ role: "user", content: [{ type: "input_text", text: "what is this?" }, { type: "input_image", image_url, detail: "auto" }] }],
  });
  const [system, user] = JSON.parse(sent).messages;
  assert.equal(system.content, "be brief");
  assert.equal(user.content[0].text, "what is this?");
  assert.equal(user.content[1].image_url.url, image_url);
}

async function responsesErrors() {
  const create = (body, c = client) => () => c.responses.create(body);
  const stream = (model) => () => client.responses.stream({ model, input: "hello" }).finalResponse();
  await fails(create({ model: "hello", input: "hello" }, stranger), OpenAI.AuthenticationError, { status: 401, code: "invalid_api_key", requestID: /^req_/ });
  await fails(create({ model: "nosuch", input: "hello" }), OpenAI.NotFoundError, { status: 404, code: "model_not_found" });
  await fails(create({ model: "hello" }), OpenAI.BadRequestError, { status: 400, param: "input" });
  await fails(create({ model: "hello", input: "hello", background: true }), OpenAI.BadRequestError, { code: "unsupported_parameter", param: "background" });
  await fails(create({ model: "full", input: "hello" }), OpenAI.BadRequestError, { code: "context_length_exceeded" });
  await fails(create({ model: "loading", input: "hello" }), OpenAI.InternalServerError, { status: 503, code: "overloaded" });
  await fails(create({ model: "offline", input: "hello" }), OpenAI.InternalServerError, { status: 503, code: "deployment_offline" });
  await fails(stream("nosuch"), OpenAI.NotFoundError, { status: 404 });
  await fails(stream("cut"), OpenAI.APIError, {});
}

const connect = (apiKey, maxRetries, fetch) => new OpenAI({ baseURL, apiKey, maxRetries, fetch });
const used = { status: 429, code: "insufficient_quota", type: "insufficient_quota" };

async function chatLimits() {
  const send = (c) => c.chat.completions.create({ model: "hello", messages });
  const rate = { status: 429, code: "rate_limit_exceeded", type: "requests", message: /This key is limited to 30 requests per minute. Please try again in \ds\./ };
  await limits(connect, send, OpenAI.RateLimitError, rate, used);
}

await check("models", models);
if (scripted) {
  await check("limits", chatLimits);
  await check("chat", () => chat("hello", "Hello, world.", 3));
  await check("chat: tools", () => chatTools("weather", results));
  await check("chat: structured output", chatForm);
  await check("chat: errors", chatErrors);
  await check("responses", () => responses("hello", "Hello, world.", 3));
  await check("responses: tools", () => responsesTools("weather", results, ["Paris", "Tokyo"]));
  await check("responses: kept", responsesKept);
  await check("responses: structured output", responsesForm);
  await check("responses: thinking", responsesThinking);
  await check("responses: probabilities", responsesProbabilities);
  await check("responses: compaction", responsesCompaction);
  await check("responses: images", responsesImages);
  await check("responses: errors", responsesErrors);
} else {
  await check("chat", () => chat(tiny, answer, 38));
  await check("chat: tools", () => chatTools(tiny, done));
  await check("responses", () => responses(tiny, answer, 38));
  await check("responses: tools", () => responsesTools(tiny, done, ["Paris"]));
}
