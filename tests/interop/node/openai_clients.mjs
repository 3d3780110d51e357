// node openai_clients.mjs <url>: npm clients of OpenAI's API use the front; prints JSON lines.
// Run by tests/interop/openai_clients.py in a folder with the packages.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";

const url = process.argv[2];
const messages = [{ role: "user", content: "Hi" }];
const parameters = { type: "object", properties: { a: { type: "integer" } } };
const functions = [{ type: "function", function: { name: "f", description: "F.", parameters } }];
const client = new OpenAI({ baseURL: url, apiKey: "unused", maxRetries: 0 });
const front = createOpenAICompatible({
  name: "front",
  baseURL: url,
  apiKey: "unused",
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const f = tool({
  description: "F.",
  inputSchema: z.object({ a: z.number().int() }),
  execute: async ({ a }) => a + 1,
});

const features = {
  async npm_openai_chat() {
    const first = await client.chat.completions.create({ model: "good", messages });
    const history = [...messages, first.choices[0].message, ...messages];
    const second = await client.chat.completions.create({ model: "good", messages: history });
    return second.choices[0].message.content === "Hello there";
  },
  async npm_openai_stream() {
    const stream = client.chat.completions.stream({ model: "good", messages });
    return (await stream.finalContent()) === "Hello there";
  },
  async npm_openai_tools() {
    const stream = client.chat.completions.stream({ model: "calls", messages, tools: functions });
    const { tool_calls } = await stream.finalMessage();
    return tool_calls[0].function.name === "f" && tool_calls[0].function.arguments === '{"a": 1}';
  },
  async npm_openai_run_tools() {
    // Streamed: the helper needs the role in the first chunk. The scripted model always calls.
    let called = 0;
    const runner = client.chat.completions.runTools(
      {
        model: "calls",
        messages,
        stream: true,
        tools: [
          {
            type: "function",
            function: { name: "f", parse: JSON.parse, parameters, function: () => `${++called}` },
          },
        ],
      },
      { maxChatCompletions: 2 },
    );
    await runner.done();
    return called >= 1;
  },
  async npm_openai_embeddings() {
    const input = Array.from({ length: 200 }, () => "x");
    return (await client.embeddings.create({ model: "vectors", input })).data.length === 200;
  },
  async vercel_ai_chat() {
    const { text, usage } = await generateText({ model: front("good"), prompt: "Hi" });
    return text === "Hello there" && usage.totalTokens > 0;
  },
  async vercel_ai_stream() {
    const stream = streamText({ model: front("good"), prompt: "Hi" });
    let text = "";
    for await (const piece of stream.textStream) text += piece;
    return text === "Hello there" && (await stream.usage).totalTokens > 0;
  },
  async vercel_ai_reasoning() {
    const stream = streamText({ model: front("thinks"), prompt: "Hi" });
    const [text, reasoning] = await Promise.all([stream.text, stream.reasoningText]);
    return text === "Hello there" && reasoning === "Hm.";
  },
  async vercel_ai_tools() {
    const { toolResults } = await generateText({
      model: front("calls"),
      prompt: "Hi",
      tools: { f },
      stopWhen: stepCountIs(1),
    });
    return toolResults[0].output === 2;
  },
  async vercel_ai_tools_stream() {
    const stream = streamText({
      model: front("calls"),
      prompt: "Hi",
      tools: { f },
      stopWhen: stepCountIs(1),
    });
    return (await stream.toolResults)[0].output === 2;
  },
  async vercel_ai_object() {
    const schema = z.object({ a: z.number().int() });
    const { object } = await generateObject({ model: front("json"), schema, prompt: "Hi" });
    return object.a === 1;
  },
  async vercel_ai_embeddings() {
    const values = Array.from({ length: 200 }, () => "x");
    const { embeddings } = await embedMany({ model: front.textEmbeddingModel("vectors"), values });
    return embeddings.length === 200;
  },
};

for (const [name, feature] of Object.entries(features)) {
  let found;
  try {
    found = (await feature()) ? "works" : "wrong answer";
  } catch (error) {
    found = `${error.name}: ${error.message}`.slice(0, 300);
  }
  console.log(JSON.stringify([name, found]));
}
