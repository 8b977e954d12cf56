// The npm client of the OpenAI API in front of `caps serve`: plain, streamed, with tools.
import assert from "node:assert";
import { createRequire } from "node:module";

const [url, modules] = process.argv.slice(2);
const OpenAI = createRequire(modules + "/")("openai").default;
const client = new OpenAI({ baseURL: url, apiKey: "any", maxRetries: 0 });
const ask = { model: "caps/m", messages: [{ role: "user", content: "vary" }], caps: { n: 4 } };

const answer = await client.chat.completions.create(ask);
assert.match(answer.choices[0].message.content, /quality=/);
assert.equal(answer.usage.caps.generation.calls, 4);

let text = "";
let usage = null;
const stream = await client.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } });
for await (const chunk of stream) {
  text += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
assert.match(text, /quality=/);
assert.equal(usage.caps.generation.calls, 4);

await assert.rejects(client.chat.completions.create({ ...ask, caps: { n: 1000 } }), OpenAI.BadRequestError);
assert.equal((await client.models.list()).data[0].id, "caps/m");
console.log("the npm client works: plain, streamed, refused, models");
