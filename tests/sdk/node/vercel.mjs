// Uses the gateway with the Vercel AI SDK, like any program: with its OpenAI provider,
// for responses (the default) and chat completions, and with its Anthropic provider.
import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { APICallError, generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { answer, apiKey, check, degrees, done, fails, gateway, results, scripted, tiny } from "./check.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const baseURL = `${gateway}/v1`;
const openai = createOpenAI({ baseURL, apiKey });
const anthropic = createAnthropic({ baseURL, apiKey });
const shape = z.object({ city: z.string(), degrees: z.number() });
const shared = { prompt: "How is the weather?", maxRetries: 0 };

// ask sends a request whole and streamed.
async function ask(body, look) {
  await look(await generateText({ ...shared, ...body }));
  const failures = [];
  const stream = streamText({ ...shared, ...body, onError: ({ error }) => failures.push(error) });
  let heard = "";
  for await (const piece of stream.textStream) heard += piece;
  assert.deepEqual(failures, []);
  const last = await stream.text;
  assert.ok(heard.endsWith(last), heard);
  await look({ text: last, steps: await stream.steps, finishReason: await stream.finishReason, usage: await stream.usage, reasoningText: await stream.reasoningText });
}

async function tools(model, text, cities) {
  let asked = [];
  const get_weather = tool({ description: "the weather now", inputSchema: z.object({ city: z.string() }), execute: ({ city }) => (asked.push(city), degrees[city]) });
  await ask({ model, tools: { get_weather }, stopWhen: stepCountIs(4), temperature: 0 }, (got) => {
    assert.deepEqual([got.text, got.finishReason, got.steps.length], [text, "stop", 2]);
    assert.deepEqual(asked, cities);
    asked = [];
  });
}

async function plain(model, text, tokens) {
  await ask({ model, temperature: 0 }, (got) => {
    assert.deepEqual([got.text, got.finishReason, got.usage.outputTokens], [text, "stop", tokens]);
  });
}

async function thinking(model) {
  await ask({ model }, (got) => assert.deepEqual([got.reasoningText, got.text], ["Six times seven.", "Forty-two."]));
}

// The history contains the model's answer: the provider for responses sends only
// its id.
async function history(provider) {
  const question = { role: "user", content: "hello" };
  const { response } = await generateText({ maxRetries: 0, model: provider("hello"), messages: [question] });
  const { text } = await generateText({ maxRetries: 0, model: provider("echo"), messages: [question, ...response.messages, question] });
  assert.deepEqual(JSON.parse(text).messages, [question, { role: "assistant", content: "Hello, world." }, question]);
}

// For unknown models, the Anthropic provider uses a tool for structured output,
// unless an option says that they support more.
async function form(model, structuredOutputMode) {
  const got = await generateText({ ...shared, model, output: Output.object({ schema: shape }), providerOptions: { anthropic: { structuredOutputMode } } });
  assert.deepEqual(got.output, { city: "Paris", degrees: 21 });
}

async function errors(provider) {
  for (const [name, statusCode] of [["nosuch", 404], ["full", 400], ["offline", 503]]) {
    await fails(() => generateText({ ...shared, model: provider(name) }), APICallError, { statusCode });
  }
  const failures = [];
  const stream = streamText({ ...shared, model: provider("cut"), onError: ({ error }) => failures.push(error) });
  await stream.consumeStream();
  assert.equal(failures.length, 1, "a cut stream fails once");
}

for (const [name, provider] of [["responses", openai], ["chat", openai.chat], ["messages", anthropic]]) {
  if (!scripted) {
    await check(`${name}: plain`, () => plain(provider(tiny), answer, 38));
    await check(`${name}: tools`, () => tools(provider(tiny), done, ["Paris"]));
    continue;
  }
  await check(`${name}: plain`, () => plain(provider("hello"), "Hello, world.", 3));
  await check(`${name}: tools`, () => tools(provider("weather"), results, ["Paris", "Tokyo"]));
  await check(`${name}: history`, () => history(provider));
  for (const mode of name === "messages" ? ["jsonTool", "outputFormat"] : [""]) {
    await check(`${name}: structured output ${mode}`, () => form(provider("form"), mode || undefined));
  }
  await check(`${name}: errors`, () => errors(provider));
  if (name !== "chat") await check(`${name}: thinking`, () => thinking(provider("think")));
}
