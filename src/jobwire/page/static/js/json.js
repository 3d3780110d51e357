// JSON with numbers kept digit for digit, and secrets dotted.
const DOTS = "••••••••";
const SECRET =
  /pass(word|wd|phrase)|secret|token|api[_-]?key|authorization|credential|private[_-]?key/i;

// A number that JavaScript would write in other digits.
class Exact {
  constructor(text) {
    this.text = text;
  }
}

export const parse = (text) =>
  JSON.parse(text, (_, value, context) =>
    typeof value === "number" && context?.source && String(value) !== context.source
      ? new Exact(context.source)
      : value,
  );

// `indent` is null for one line; with `hide`, the values of members that are called like secrets are dotted.
function write(value, hide, indent) {
  if (value instanceof Exact) return value.text;
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  const inner = indent === null ? null : `${indent}  `;
  const member = ([name, each]) => {
    const dotted = hide && SECRET.test(name) && each !== null && each !== "";
    return `${JSON.stringify(name)}:${indent === null ? "" : " "}${dotted ? `"${DOTS}"` : write(each, hide, inner)}`;
  };
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const entries = Array.isArray(value)
    ? value.map((each) => write(each, hide, inner))
    : Object.entries(value).map(member);
  if (indent === null || !entries.length) return open + entries.join(",") + close;
  return `${open}\n${inner}${entries.join(`,\n${inner}`)}\n${indent}${close}`;
}

export const compact = (value) => write(value, false, null);
export const pretty = (value, { hide = false } = {}) => write(value, hide, "");

// The same for a text that may be JSON, or the start of one: an event, or a field of the wire. Each string is read once,
// whether or not it is a member's name, so that no text takes more than linear time.
const STRING = String.raw`"(?:\\[^]?|[^"\\])*"?`;
const STRINGS = new RegExp(`(${STRING})(?:(\\s*:\\s*)(${STRING}))?`, "g");
export const dotted = (text) =>
  text.replace(STRINGS, (whole, name, colon, value) =>
    value && SECRET.test(name) ? `${name}${colon}"${DOTS}"` : whole,
  );
