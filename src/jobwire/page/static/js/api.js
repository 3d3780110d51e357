// Calls of the public API. The key stays in this tab; it is sent as a header, never as a cookie.
import { app } from "./store.js";
import { learnClock } from "./format.js";
import { parse } from "./json.js";

const KEY = "jobwire.key";
const TIMEOUT_MS = 10000;

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (text) => sessionStorage.setItem(KEY, text),
  clear: () => sessionStorage.removeItem(KEY),
};

// The header that carries the key, if there is one.
export const signed = () => (key.get() ? { authorization: `Bearer ${key.get()}` } : {});

// A refusal (a problem document), or no answer at all (status 0).
export class Problem extends Error {
  constructor(status, document = {}) {
    super(document.detail || document.title || `the gateway answered with ${status}`);
    this.status = status;
    this.code = document.code ?? "";
    this.document = document;
  }
  get noAnswer() {
    return this.status === 0 || this.status === 502 || this.status === 503 || this.status === 504;
  }
}

export async function call(method, path, { body, headers = {}, exact = [] } = {}) {
  const began = performance.now();
  let answer, text;
  try {
    answer = await fetch(path, {
      method,
      body,
      headers: {
        ...headers,
        ...signed(),
        ...(body != null && { "content-type": "application/json" }),
      },
      cache: "no-store",
      credentials: "omit",
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    text = await answer.text();
  } catch (error) {
    const late = error.name === "TimeoutError";
    throw new Problem(0, { detail: late ? "No answer within 10 s" : "No answer from the gateway" });
  }
  app.latency = performance.now() - began;
  learnClock(answer.headers.get("date"));
  let document = null;
  try {
    document = text ? JSON.parse(text) : null;
    // What callers and handlers have written is shown digit for digit.
    const whole = exact.length && text ? parse(text) : {};
    for (const name of exact) document[name] = whole[name];
  } catch {
    throw new Problem(answer.ok ? 502 : answer.status, { detail: "An answer that is not JSON" });
  }
  if (!answer.ok) throw new Problem(answer.status, document ?? {});
  return document;
}

export const get = (path, query = {}) => {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  const text = new URLSearchParams(given).toString();
  return call("GET", text ? `${path}?${text}` : path);
};
export const getJob = (id) =>
  call("GET", `/v1/jobs/${encodeURIComponent(id)}`, { exact: ["payload", "result", "error"] });
export const post = (path, body, headers) => call("POST", path, { body, headers });

// /readyz answers 503 with the same parts when one of them is down.
export async function readiness() {
  try {
    return (await get("/readyz")).parts;
  } catch (problem) {
    if (problem.document?.parts) return problem.document.parts;
    throw problem;
  }
}
