// Reads prompts, one JSON object a line, and prints the number of tokens of each with the tokenizer and the chat
// template of a model.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { Template } from "@huggingface/jinja";
import { TokenizerLoader } from "@lenml/tokenizers";
import { harmony } from "./harmony.mjs";

const name = process.argv[2];
const read = (part) => JSON.parse(readFileSync(`node_modules/@lenml/tokenizer-${name}/models/${part}.json`, "utf8"));
const tokenizerConfig = read("tokenizer_config");
const tokenizer = TokenizerLoader.fromPreTrained({ tokenizerJSON: read("tokenizer"), tokenizerConfig });
const template = name !== "gptoss" && new Template(tokenizerConfig.chat_template);
const bos = tokenizerConfig.bos_token?.content ?? tokenizerConfig.bos_token;

// Servers give such models the tools as JSON in the system prompt, and calls and results as text.
function plain({ messages, tools }) {
  const all = messages.map((m) => ({ ...m }));
  if (tools) {
    if (all[0].role !== "system") all.unshift({ role: "system", content: "" });
    all[0].content += "\n\nAvailable tools: " + JSON.stringify(tools);
  }
  const out = [];
  for (const m of all) {
    const role = m.role === "tool" ? "user" : m.role;
    let { content } = m;
    if (m.tool_calls) {
      content += JSON.stringify(m.tool_calls.map((c) => ({ name: c.function.name, arguments: c.function.arguments })));
    }
    const last = out.at(-1);
    if (last?.role === role) last.content += "\n" + content;
    else out.push({ role, content });
  }
  return { messages: out };
}

function render(prompt) {
  if (name === "gptoss") return harmony(prompt);
  const { messages, tools } = name === "qwen3" ? prompt : plain(prompt);
  return template.render({ messages, tools, bos_token: bos, add_generation_prompt: true });
}

for await (const line of createInterface({ input: process.stdin })) {
  const text = render(JSON.parse(line));
  console.log(tokenizer.encode(text, { add_special_tokens: false }).length);
}
