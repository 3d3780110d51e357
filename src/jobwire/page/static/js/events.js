// Event streams, over any number of reconnects: each event once and in order.
import { key, post } from "./api.js";
import { parse } from "./json.js";

const RETRY_MS = 1500;

// One stream, over any number of reconnects; `listen` adds the listeners to each new source.
export class Follower {
  constructor(path, query) {
    this.path = path;
    this.query = query;
    this.lastId = "";
    this.state = "opening"; // opening, open, broken, ended
    this.over = false; // nothing more is expected: the end of the stream is the end
    queueMicrotask(() => this.open());
  }

  async open() {
    if (this.state === "ended") return;
    const query = new URLSearchParams(this.query);
    try {
      if (key.get()) {
        // An EventSource sends no headers: a token for this one stream takes the key's place.
        const body = JSON.stringify({ path: this.path });
        query.set("token", (await post("/v1/stream-tokens", body)).token);
      }
    } catch {
      return this.again();
    }
    if (this.state === "ended") return;
    if (this.lastId) query.set("last_event_id", this.lastId);
    const source = (this.source = new EventSource(`${this.path}?${query}`));
    source.onopen = () => (this.state = "open");
    this.listen(source);
    source.onerror = () => {
      if (this.state === "ended") return;
      if (this.over) return this.close();
      this.state = "broken";
      // The browser reconnects by itself, unless the gateway has refused (an expired token).
      if (source.readyState === EventSource.CLOSED) this.again();
    };
  }

  again() {
    if (this.state === "ended") return;
    this.state = "broken";
    this.onRefused?.();
    this.timer = setTimeout(() => this.open(), RETRY_MS);
  }

  close() {
    this.state = "ended";
    clearTimeout(this.timer);
    this.source?.close();
  }
}

// Never taken back: every attempt stays visible.
const STATES = "queued running retrying suspended step_done done error canceled gap".split(" ");
const place = (id) => id.split("-").map(Number);

// Which events still count after a `rollback` to this id: all others were reported by a run that is superseded.
export function keptAfter(to) {
  const [ms, number] = place(to);
  return ({ id, type }) => {
    if (STATES.includes(type)) return true;
    const [eventMs, eventNumber] = place(id);
    return eventMs < ms || (eventMs === ms && eventNumber <= number);
  };
}

// `heard` is called with each event of a job: {id, type, ts, step, data}; `gap` where some are missing;
// `takenBack` with what tells the events that still count, when a later run begins anew.
export class EventFollower extends Follower {
  constructor(path, heard, gap, takenBack) {
    super(path, { data: "message", view: "clean" });
    Object.assign(this, { heard, gap, takenBack });
  }

  listen(source) {
    source.addEventListener("gap", () => this.gap());
    source.addEventListener("rollback", ({ data }) =>
      this.takenBack(keptAfter(JSON.parse(data).to)),
    );
    source.onmessage = (event) => {
      this.lastId = event.lastEventId;
      const body = JSON.parse(event.data);
      this.heard({ ...body, exact: parse(event.data).data, id: event.lastEventId });
      if (["done", "error", "canceled"].includes(body.type)) this.close();
    };
  }
}
