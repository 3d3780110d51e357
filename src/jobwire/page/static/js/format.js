// Numbers, times and ids in words.
const THIN = "\u202f";
let skew = 0;

// The server's clock counts; its Date header has whole seconds.
export function learnClock(date) {
  const ahead = Date.parse(date) - Date.now();
  if (Number.isFinite(ahead)) skew = Math.abs(ahead) > 2000 ? ahead : 0;
}
export const now = () => Date.now() + skew;

export const count = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, THIN);
export const plural = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;

export function duration(ms) {
  if (ms == null) return "";
  ms = Math.max(0, ms);
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 59.95) return `${s.toFixed(1)} s`;
  const whole = Math.round(s);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

// Coarse, so that it does not change with every poll.
export function age(ms) {
  if (ms < 59500) return `${Math.max(0, Math.round(ms / 1000))} s`;
  if (ms < 3600e3) return `${Math.round(ms / 60e3)} min`;
  if (ms < 86400e3) return `${Math.floor(ms / 3600e3)} h ${Math.floor((ms % 3600e3) / 60e3)} min`;
  return duration(ms);
}
export const ago = (ts) => `${age(now() - ts)} ago`;

export const zone = {
  get utc() {
    return localStorage.getItem("jobwire.zone") !== "local";
  },
  flip() {
    localStorage.setItem("jobwire.zone", this.utc ? "local" : "utc");
  },
  get name() {
    if (this.utc) return "UTC";
    const minutes = -new Date().getTimezoneOffset();
    const pad = (n) => String(Math.floor(Math.abs(n))).padStart(2, "0");
    return `${minutes < 0 ? "−" : "+"}${pad(minutes / 60)}:${pad(minutes % 60)}`;
  },
};

// Other programs write times of any size; a Date throws beyond these.
const LAST = 8.64e15 - 86400e3;
const within = (ts) => Math.min(LAST, Math.max(-LAST, Number(ts) || 0));
export const iso = (ts) => new Date(within(ts)).toISOString();
function shifted(ts) {
  const date = new Date(within(ts));
  return zone.utc ? date : new Date(date.getTime() - date.getTimezoneOffset() * 60e3);
}
export const clock = (ts, ms = false) =>
  shifted(ts)
    .toISOString()
    .slice(11, ms ? 23 : 19);

// The time, with its day if that is not today.
export function moment(ts) {
  const day = shifted(ts).toISOString().slice(0, 10);
  const today = shifted(now()).toISOString().slice(0, 10);
  return day === today ? clock(ts) : `${day} ${clock(ts).slice(0, 5)}`;
}

export function bytes(n) {
  if (n < 1000) return `${n} B`;
  return n < 1e6 ? `${(n / 1e3).toFixed(1)} kB` : `${(n / 1e6).toFixed(1)} MB`;
}
// A limit as its setting has it: 1 MB is 1,048,576 bytes there.
export const megabytes = (n) => `${Math.floor(n / 2 ** 20)} MB`;
export const size = (text) => new TextEncoder().encode(text).length;

export const shortId = (id) => (id.length > 16 ? `${id.slice(0, 6)}…${id.slice(-4)}` : id);
export const shortWorker = (name) => name?.replace(/^jobwire-/, "").replace(/-[0-9a-f]{8}$/, "");

// A word for a shell, quoted where it must be.
export const quoted = (word) =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
