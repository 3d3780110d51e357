// Draws openapi.json: operations by tag, their parameters, bodies and answers, and a form to send
// each request. All text is set as text, never as markup. The key stays in this tab, as on the page.
const KEY = "jobwire.key";
const METHODS = ["get", "post", "put", "patch", "delete"];
const MAX_SHOWN = 200_000;
const base = new URL("..", document.baseURI);
const keyField = document.getElementById("key");
const main = document.getElementById("operations");
let api = {};

function element(name, options = {}, ...children) {
  const made = Object.assign(document.createElement(name), options);
  made.append(...children.filter((child) => child !== null));
  return made;
}

const json = (value) => JSON.stringify(value, null, 2);

function resolve(schema, depth = 0) {
  // A reference becomes what it stands for, so that a schema can be read in one piece.
  if (schema === null || typeof schema !== "object") return schema;
  if (Array.isArray(schema)) return schema.map((each) => resolve(each, depth));
  if (schema.$ref) {
    const found = schema.$ref.split("/").slice(1).reduce((at, step) => at?.[step.replaceAll("~1", "/").replaceAll("~0", "~")], api);
    return depth > 5 || !found ? schema : resolve(found, depth + 1);
  }
  return Object.fromEntries(Object.entries(schema).map(([name, value]) => [name, resolve(value, depth + 1)]));
}

function example(content) {
  if (content?.example !== undefined) return content.example;
  const named = Object.values(content?.examples ?? {})[0];
  return named ? resolve(named).value : undefined;
}

function fold(title, text) {
  return element("details", {}, element("summary", { textContent: title }), element("pre", { textContent: text }));
}

function parameters(operation) {
  return (operation.parameters ?? []).map((each) => resolve(each));
}

function describe(operation) {
  const parts = [];
  if (operation.description) parts.push(element("p", { textContent: operation.description }));
  const scope = operation["x-jobwire-scope"];
  if (scope) parts.push(element("p", { className: "muted", textContent: `scope: ${scope}` }));
  const given = parameters(operation);
  if (given.length) {
    parts.push(element("h3", { textContent: "Parameters" }));
    parts.push(element("table", {}, ...given.map((each) => element("tr", {},
      element("td", { textContent: each.name }),
      element("td", { textContent: `${each.in}${each.required ? ", required" : ""}` }),
      element("td", { textContent: each.description ?? "" })))));
  }
  for (const [type, content] of Object.entries(operation.requestBody?.content ?? {})) {
    if (content.schema) parts.push(fold(`Body: ${type}`, json(resolve(content.schema))));
  }
  parts.push(element("h3", { textContent: "Answers" }));
  parts.push(element("table", {}, ...Object.entries(operation.responses ?? {}).map(([status, raw]) => {
    const answer = resolve(raw);
    const [type, content] = Object.entries(answer.content ?? {})[0] ?? ["", {}];
    const shown = example(content);
    return element("tr", {},
      element("td", { textContent: status, className: status < "400" ? "good" : "bad" }),
      element("td", {}, answer.description ?? "",
        content.schema ? fold(`${type}: schema`, json(content.schema)) : null,
        shown === undefined ? null : fold("example", typeof shown === "string" ? shown : json(shown))));
  })));
  return parts;
}

function form(method, path, operation) {
  const fields = parameters(operation).filter((each) => ["path", "query", "header"].includes(each.in));
  const inputs = fields.map((each) => element("input", { name: each.name, ariaLabel: each.name, placeholder: String(each.example ?? each.schema?.default ?? "") }));
  const [type, content] = Object.entries(operation.requestBody?.content ?? {})[0] ?? [];
  const sample = example(content);
  const text = sample === undefined ? "" : typeof sample === "string" ? sample : json(sample);
  const rows = Math.min(20, Math.max(4, text.split("\n").length));
  const body = type ? element("textarea", { spellcheck: false, ariaLabel: "body", value: text, rows }) : null;
  const answer = element("pre", { hidden: true });
  const command = element("pre", { hidden: true });
  let sending = null;

  function request() {
    let target = path;
    const query = new URLSearchParams();
    const headers = {};
    fields.forEach((field, at) => {
      const text = inputs[at].value;
      if (field.in === "path") target = target.replace(`{${field.name}}`, encodeURIComponent(text));
      else if (text && field.in === "query") query.append(field.name, text);
      else if (text) headers[field.name] = text;
    });
    if (keyField.value) headers.Authorization = `Bearer ${keyField.value}`;
    if (body) headers["Content-Type"] = type;
    const url = new URL(target.slice(1), base);
    url.search = query.toString();
    return { url, headers };
  }

  async function send() {
    sending?.abort();
    sending = new AbortController();
    const { url, headers } = request();
    answer.hidden = false;
    answer.className = "muted";
    answer.textContent = "…";
    try {
      const response = await fetch(url, { method: method.toUpperCase(), headers, body: body?.value, signal: sending.signal });
      answer.className = response.ok ? "" : "bad";
      const head = `${response.status} ${response.statusText}`.trim();
      const kind = response.headers.get("content-type") ?? "";
      answer.textContent = `${head}\n`;
      const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (let part = await reader?.read(); part && !part.done; part = await reader.read()) {
        text += part.value; // event streams are shown as they arrive
        answer.textContent = `${head}\n${text.slice(-MAX_SHOWN)}`;
      }
      if (kind.includes("json") && text.length < MAX_SHOWN) answer.textContent = `${head}\n${indented(text)}`;
    } catch (error) {
      if (error.name === "AbortError") answer.textContent += "\n(stopped)";
      else answer.textContent = `the gateway does not answer: ${error.message}`;
    }
  }

  function show() {
    const { url, headers } = request();
    const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
    const given = Object.entries(headers).map(([name, text]) => ` \\\n  -H ${name === "Authorization" ? '"Authorization: Bearer $JOBWIRE_API_KEY"' : quote(`${name}: ${text}`)}`);
    command.hidden = false;
    command.textContent = `curl -X ${method.toUpperCase()} ${quote(url.href)}${given.join("")}${body ? ` \\\n  -d ${quote(body.value)}` : ""}`;
  }

  return [
    element("h3", { textContent: "Try it" }),
    element("table", {}, ...fields.map((each, at) => element("tr", {}, element("td", { textContent: each.name }), element("td", {}, inputs[at])))),
    ...(body ? [body] : []),
    element("div", {},
      element("button", { type: "button", textContent: "Send", onclick: send }),
      element("button", { type: "button", className: "second", textContent: "Stop", onclick: () => sending?.abort() }),
      element("button", { type: "button", className: "second", textContent: "curl", onclick: show })),
    command, answer,
  ];
}

function indented(text) {
  // Numbers stay as they were sent: only white space between tokens is changed.
  try { JSON.parse(text); } catch { return text; }
  let depth = 0;
  return text.replace(/"(?:[^"\\]|\\.)*"|[{}[\],:]|\s+|[^"{}[\],:\s]+/g, (token) => {
    if (!token.trim()) return "";
    if (token === "{" || token === "[") { depth += 1; return `${token}\n${"  ".repeat(depth)}`; }
    if (token === "}" || token === "]") { depth -= 1; return `\n${"  ".repeat(depth)}${token}`; }
    if (token === ",") return `,\n${"  ".repeat(depth)}`;
    return token === ":" ? ": " : token;
  }).replace(/([{[])\n\s*\n\s*([}\]])/g, "$1$2");
}

function draw(wanted) {
  const words = wanted.toLowerCase().split(/\s+/);
  const groups = new Map();
  for (const [path, item] of Object.entries(api.paths ?? {})) {
    for (const method of METHODS.filter((each) => item[each])) {
      const operation = item[method];
      const text = `${method} ${path} ${operation.summary ?? ""}`.toLowerCase();
      if (!words.every((word) => text.includes(word))) continue;
      const id = `${method}${path}`;
      const details = element("details", { id },
        element("summary", {}, element("span", { className: "method", textContent: method.toUpperCase() }),
          element("span", { className: "path", textContent: path }), element("span", { className: "muted", textContent: operation.summary ?? "" })));
      const fill = () => {
        if (details.open && details.childElementCount === 1) {
          details.append(element("div", { className: "body" }, ...describe(operation), ...form(method, path, operation)));
          history.replaceState(null, "", `#${id}`);
        }
      };
      details.addEventListener("toggle", fill);
      const tag = operation.tags?.[0] ?? "other";
      groups.set(tag, [...(groups.get(tag) ?? []), details]);
    }
  }
  const order = new Map((api.tags ?? []).map((tag, at) => [tag.name, at]));
  const sorted = [...groups].sort(([one], [other]) => (order.get(one) ?? order.size) - (order.get(other) ?? order.size));
  main.replaceChildren(...sorted.flatMap(([tag, list]) => [element("h2", { textContent: tag }), ...list]));
  if (!groups.size) main.append(element("p", { textContent: "No operation has these words." }));
}

async function load() {
  keyField.value = sessionStorage.getItem(KEY) ?? "";
  keyField.addEventListener("input", () => sessionStorage.setItem(KEY, keyField.value));
  document.getElementById("find").addEventListener("input", (event) => draw(event.target.value.trim()));
  const response = await fetch(new URL("openapi.json", base));
  api = await response.json();
  document.getElementById("version").textContent = api.info?.version ?? "";
  draw("");
  const chosen = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (chosen) { chosen.open = true; chosen.scrollIntoView(); }
}

load().catch((error) => main.replaceChildren(element("p", { className: "bad", textContent: `openapi.json cannot be read: ${error.message}` })));
