// What the chat template of gpt-oss makes of a conversation: tools as types of TypeScript.

const basic = { string: "string", number: "number", integer: "number", boolean: "boolean" };

function type(schema) {
  if (schema.enum) return schema.enum.map((e) => JSON.stringify(e)).join(" | ");
  if (schema.type === "array") {
    const item = schema.items ? type(schema.items) : "any";
    return item.length > 50 ? "any[]" : item + "[]";
  }
  if (schema.type !== "object") return basic[schema.type] ?? "any";
  if (!schema.properties) return "object";
  const members = Object.entries(schema.properties).map(([name, s]) => mark(schema, name) + type(s));
  return "{\n" + members.join(", ") + "}";
}

const mark = (schema, name) => name + (schema.required?.includes(name) ? ": " : "?: ");

function signature({ description, name, parameters }) {
  let text = `// ${description}\ntype ${name} = `;
  if (!parameters?.properties) return text + "() => any;\n\n";
  text += "(_: {\n";
  for (const [member, schema] of Object.entries(parameters.properties)) {
    if (schema.description) text += `// ${schema.description}\n`;
    text += mark(parameters, member) + type(schema) + ",\n";
  }
  return text + "}) => any;\n\n";
}

export function harmony({ messages, tools }) {
  let text = "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n" +
    "Knowledge cutoff: 2024-06\nCurrent date: 2026-01-01\n\nReasoning: medium\n\n" +
    "# Valid channels: analysis, commentary, final. Channel must be included for every message.";
  if (tools) text += "\nCalls to these tools must go to the commentary channel: 'functions'.";
  text += "<|end|>";
  const system = messages[0].role === "system" ? messages[0].content : "";
  if (system || tools) {
    text += "<|start|>developer<|message|>";
    if (system) text += "# Instructions\n\n" + system + "\n\n";
    if (tools) {
      text += "# Tools\n\n## functions\n\nnamespace functions {\n\n";
      text += tools.map((t) => signature(t.function)).join("") + "} // namespace functions";
    }
    text += "<|end|>";
  }
  const lastAnswer = messages.findLastIndex((m) => m.role === "assistant" && !m.tool_calls);
  let called;
  messages.forEach((m, i) => {
    if (m.role === "user") text += `<|start|>user<|message|>${m.content}<|end|>`;
    if (m.role === "tool") {
      text += `<|start|>functions.${called} to=assistant<|channel|>commentary<|message|>` +
        `${JSON.stringify(m.content)}<|end|>`;
    }
    if (m.role !== "assistant") return;
    if (!m.tool_calls) {
      text += `<|start|>assistant<|channel|>final<|message|>${m.content}<|end|>`;
      return;
    }
    const thought = m.content || m.reasoning_content;
    if (thought && i > lastAnswer) text += `<|start|>assistant<|channel|>analysis<|message|>${thought}<|end|>`;
    for (const { function: f } of m.tool_calls) {
      called = f.name;
      text += `<|start|>assistant to=functions.${f.name}<|channel|>commentary json<|message|>${f.arguments}<|call|>`;
    }
  });
  return text + "<|start|>assistant";
}
