// Every view is a URL: `#/jobs?state=failed`. Segments and query are decoded.
export function read(hash = location.hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decode);
  return { parts, query: new URLSearchParams(query) };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function link(parts, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  const text = new URLSearchParams(given).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export const go = (hash) => (location.hash = hash);

// Without a new entry in the history: typing into a filter.
export function replace(hash) {
  history.replaceState(null, "", hash);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

// A job of a queue is named by its queue and its id; images and predictions have screens of their own.
export const jobLink = (wire, id, query, queue = "") =>
  link(
    wire === "images" || wire === "predictions"
      ? [wire, id]
      : ["jobs", wire, ...(wire === "bullmq" ? [queue] : []), id],
    query,
  );
