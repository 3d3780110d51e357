// A job's events, each once and in order, over any number of reconnects.
import { key, post } from "./api.js";
import { parse } from "./json.js";

const RETRY_MS = 1500;

export class EventFollower {
  // `heard` is called with each event: {id, type, ts, step, data}; `gap` where events are missing.
  constructor(path, heard, gap) {
    this.path = path;
    this.heard = heard;
    this.gap = gap;
    this.lastId = "";
    this.state = "opening"; // opening, open, broken, ended
    this.open();
  }

  async open() {
    if (this.state === "ended") return;
    let url = `${this.path}?data=message`;
    try {
      if (key.get()) {
        // An EventSource sends no headers: a token for this one stream takes the key's place.
        const body = JSON.stringify({ path: this.path });
        url += `&token=${encodeURIComponent((await post("/v1/stream-tokens", body)).token)}`;
      }
    } catch {
      return this.again();
    }
    if (this.state === "ended") return;
    if (this.lastId) url += `&last_event_id=${encodeURIComponent(this.lastId)}`;
    const source = (this.source = new EventSource(url));
    source.onopen = () => (this.state = "open");
    source.addEventListener("gap", () => this.gap());
    source.onmessage = (event) => {
      this.lastId = event.lastEventId;
      const body = JSON.parse(event.data);
      this.heard({ ...body, exact: parse(event.data).data, id: event.lastEventId });
      if (["done", "error", "canceled"].includes(body.type)) this.close();
    };
    source.onerror = () => {
      if (this.state === "ended") return;
      this.state = "broken";
      // The browser reconnects by itself, unless the gateway has refused (an expired token).
      if (source.readyState === EventSource.CLOSED) this.again();
    };
  }

  again() {
    if (this.state === "ended") return;
    this.state = "broken";
    this.timer = setTimeout(() => this.open(), RETRY_MS);
  }

  close() {
    this.state = "ended";
    clearTimeout(this.timer);
    this.source?.close();
  }
}
