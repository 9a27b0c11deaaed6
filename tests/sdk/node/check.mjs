// Uses the gateway as any program with the official OpenAI SDK does, and
// prints what it saw as one JSON object. Environment: BASE_URL, API_KEY, MODEL,
// PROMPT, and CUT, a model whose streams are cut by the upstream.
import OpenAI from "openai";

const { BASE_URL: baseURL, API_KEY: apiKey, MODEL: model, PROMPT: prompt, CUT: cut } = process.env;
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const messages = [{ role: "user", content: prompt }];

// caught returns what a program sees of a failure.
async function caught(call) {
  try {
    await call();
    return { class: "none" };
  } catch (e) {
    return { class: e.constructor.name, status: e.status ?? 0, code: e.code ?? "", requestID: Boolean(e.requestID) };
  }
}

const report = { models: [], streamed: "", finish: "", chunks: 0 };
for await (const m of client.models.list()) report.models.push(m.id);
report.retrieved = (await client.models.retrieve(model)).id;

const { data, request_id: id } = await client.chat.completions.create({ model, messages, temperature: 0 }).withResponse();
report.completed = data.choices[0].message.content;
report.answeredModel = data.model;
report.requestID = id;

const stream = await client.chat.completions.create({
  model, messages, temperature: 0, stream: true, stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  report.chunks++;
  report.streamed += chunk.choices[0]?.delta?.content ?? "";
  report.finish ||= chunk.choices[0]?.finish_reason ?? "";
  report.usage ??= chunk.usage?.completion_tokens;
}

const helper = client.chat.completions.stream({ model, messages, temperature: 0 });
report.helper = (await helper.finalChatCompletion()).choices[0].message.content;

const wrong = new OpenAI({ baseURL, apiKey: "sk-svc-wrong", maxRetries: 0 });
report.errors = {
  wrongKey: await caught(() => wrong.models.list()),
  unknownModel: await caught(() => client.chat.completions.create({ model: "nosuch", messages })),
  unknownRetrieve: await caught(() => client.models.retrieve("nosuch")),
  badRequest: await caught(() => client.chat.completions.create({ messages })),
  cutStream: await caught(async () => {
    const s = await client.chat.completions.create({ model: cut, messages, stream: true });
    for await (const chunk of s) void chunk;
  }),
};
console.log(JSON.stringify(report));
