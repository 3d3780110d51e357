// The screens. To add one, add its module and a line here; it is loaded when it is first opened, and
// loads no module of another screen.
// A module exports open(route) → { title(), view(), label? (for the browser's tab), poll?(rare),
// changed?(route), close?(), drawn?(), paused?(on), escape?() }. One open screen shows all routes with the same key(route). Entries with
// `nav` are in the navigation, the first four of them in the bar of the phone; those of a system only
// if this gateway serves it.
import { app, serves } from "../store.js";
import { count, plural } from "../format.js";
import { styled } from "../parts.js";

const at = (name, length) => (route) => route.parts[0] === name && route.parts.length === length;
const inQueues = (one) => (route) =>
  at("jobs", 1)(route) &&
  route.query.get("wire") === "bullmq" &&
  !!route.query.get("queue") === one;
const faults = () => (app.parts ?? []).filter((part) => part.state !== "ready").length;
const inWork = (system) =>
  (app.overview?.systems ?? []).reduce(
    (n, row) => (row.system === system ? n + row.waiting + row.running : n),
    0,
  );
const busy = (system) => inWork(system) && { text: count(inWork(system)) };

const all = [
  {
    id: "now",
    nav: "Now",
    title: "Now",
    href: "#/",
    letter: "n",
    match: ({ parts }) => !parts.length,
    load: () => styled("list board now", import("./now.js")),
  },
  {
    id: "jobs",
    title: "Queue",
    match: inQueues(true),
    key: ({ query }) => query.get("queue"),
    load: () => styled("list board queues", import("./queue.js")),
  },
  {
    id: "jobs",
    title: "Queues",
    match: inQueues(false),
    key: () => "queues",
    load: () => styled("list board queues", import("./queues.js")),
  },
  // A gateway of queues only shows those instead.
  {
    id: "jobs",
    nav: "Jobs",
    title: "Jobs",
    href: "#/jobs",
    letter: "j",
    match: at("jobs", 1),
    load: () => styled("list", import("./jobs.js")),
    badge: () => busy(serves("jobs") ? "jobs" : "queues"),
  },
  {
    id: "jobs",
    title: "Job",
    match: at("jobs", 3),
    key: ({ parts }) => parts.join("/"),
    load: () => styled("job", import("./job.js")),
  },
  {
    id: "jobs",
    title: "Job of a queue",
    match: at("jobs", 4),
    key: ({ parts }) => parts.join("/"),
    load: () => styled("job", import("./queue_job.js")),
  },
  {
    id: "failures",
    nav: "Failures",
    title: "Failures",
    href: "#/failures",
    letter: "f",
    match: at("failures", 1),
    load: () => styled("board fleet text", import("./failures.js")),
    badge: () => app.failed?.count && { text: count(app.failed.count), tone: "failed" },
  },
  {
    id: "workers",
    nav: "Workers",
    title: "Workers and backends",
    href: "#/workers",
    letter: "w",
    match: at("workers", 1),
    load: () => styled("fleet", import("./workers.js")),
    badge: () => faults() && { text: plural(faults(), "fault"), tone: "warn" },
  },
  {
    id: "images",
    system: "images",
    nav: "Images",
    title: "Images",
    href: "#/images",
    letter: "i",
    match: ({ parts }) => parts[0] === "images" && parts.length <= 2,
    load: () => styled("list media", import("./images.js")),
    badge: () => busy("images"),
  },
  {
    id: "predictions",
    system: "predictions",
    nav: "Predictions",
    title: "Predictions",
    href: "#/predictions",
    letter: "p",
    match: ({ parts }) => parts[0] === "predictions" && parts.length <= 2,
    load: () => styled("list job media", import("./predictions.js")),
    badge: () => busy("predictions"),
  },
];

export const screens = () =>
  all.filter((screen) => screen.nav && (!screen.system || serves(screen.system)));
export const screenOf = (route) => all.find((screen) => screen.match(route)) ?? all[0];
// The same for all routes that one open screen shows.
export function nameOf(route) {
  const entry = screenOf(route);
  return `${entry.id} ${entry.key?.(route) ?? ""}`;
}
