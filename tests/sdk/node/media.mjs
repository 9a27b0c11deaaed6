// Uses the gateway with the official OpenAI SDK for audio, images and embeddings, like any
// program. MODEL is the public name of a model of all kinds, FILE a file to upload.
import assert from "node:assert/strict";
import fs from "node:fs";
import OpenAI, { toFile } from "openai";
import { apiKey, check, fails, gateway, pixel } from "./check.mjs";

const { MODEL: model, FILE: path, HEARD: heard, SOUND: sound } = process.env;
const client = new OpenAI({ baseURL: `${gateway}/v1`, apiKey, maxRetries: 0 });

async function transcription() {
  // A stream of a file has no length, and a blob has one.
  const got = await client.audio.transcriptions.create({ file: fs.createReadStream(path), model, response_format: "json" });
  assert.deepEqual([got.text, got.usage.seconds], [heard, 3]);
  const file = await toFile(fs.readFileSync(path), 'a "file".wav', { type: "audio/wav" });
  const text = await client.audio.transcriptions.create({ model, file, response_format: "vtt", timestamp_granularities: ["word", "segment"] });
  assert.ok(text.startsWith("WEBVTT\n"), text);
  let words = "";
  for await (const event of await client.audio.transcriptions.create({ file, model, stream: true })) words += event.delta ?? "";
  assert.equal(words, heard);
}

async function speech() {
  const got = await client.audio.speech.create({ model, input: "Grüße 🦙", voice: "af_heart", response_format: "mp3" });
  assert.equal(got.headers.get("content-type"), "audio/mpeg");
  assert.equal(Buffer.from(await got.arrayBuffer()).toString("hex"), sound);
  await fails(() => client.audio.speech.create({ model, input: "", voice: "af_heart" }), OpenAI.BadRequestError, { status: 400 });
}

async function images() {
  const made = await client.images.generate({ model, prompt: "a pixel", response_format: "b64_json" });
  assert.equal(made.data[0].b64_json, pixel);
  const image = [fs.createReadStream(path), await toFile(fs.readFileSync(path), "b.png", { type: "image/png" })];
  const edited = await client.images.edit({ image, prompt: "larger", model, mask: fs.createReadStream(path) });
  assert.equal(edited.data[0].b64_json, pixel);
}

async function embeddings() {
  // The SDK asks for base64, and decodes it.
  const got = await client.embeddings.create({ model, input: ["a", "b"] });
  assert.deepEqual([got.model, got.data[0].embedding], [model, [1, -2]]);
}

await check("transcription", transcription);
await check("speech", speech);
await check("images", images);
await check("embeddings", embeddings);
