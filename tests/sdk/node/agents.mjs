// Uses the gateway with the OpenAI Agents SDK, like any program: an agent with a
// tool, with responses and with chat completions.
import assert from "node:assert/strict";
import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool } from "@openai/agents";
import OpenAI from "openai";
import { z } from "zod";
import { apiKey, check, degrees, done, gateway, results, scripted, tiny } from "./check.mjs";

setTracingDisabled(true);
const openAIClient = new OpenAI({ baseURL: `${gateway}/v1`, apiKey, maxRetries: 0 });
const [model, text, cities] = scripted ? ["weather", results, ["Paris", "Tokyo"]] : [tiny, done, ["Paris"]];

async function run(useResponses, stream) {
  const asked = [];
  const agent = new Agent({
    name: "forecaster", instructions: "Answer with the weather.", model, modelSettings: { temperature: 0 },
    tools: [tool({
      name: "get_weather", description: "the weather now", parameters: z.object({ city: z.string() }),
      execute: ({ city }) => (asked.push(city), degrees[city]),
    })],
  });
  const runner = new Runner({ modelProvider: new OpenAIProvider({ openAIClient, useResponses }), tracingDisabled: true });
  const got = await runner.run(agent, "How is the weather?", { stream });
  if (stream) {
    let heard = "";
    for await (const piece of got.toTextStream()) heard += piece;
    await got.completed;
    assert.ok(heard.endsWith(text), heard);
  }
  assert.equal(got.finalOutput, text);
  assert.deepEqual(asked, cities);
}

for (const stream of [false, true]) {
  await check(`responses, streamed: ${stream}`, () => run(true, stream));
  await check(`chat, streamed: ${stream}`, () => run(false, stream));
}
