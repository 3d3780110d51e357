// The Wire tab: the keys of a job as they are on the server, with the command that reads each.
import { html, nothing, icon, copyButton, command, segments } from "./ui.js";
import { app, update } from "./store.js";
import { dotted } from "./json.js";
import { age, count, duration, plural, quoted, shortId } from "./format.js";

let as = "valkey-cli";

const commandOf = (key) => {
  if (as === "valkey-cli") return `valkey-cli ${key.command.map(quoted).join(" ")}`;
  if (!key.path) return "";
  const stream = key.path.endsWith("/events") ? "-N " : "";
  const secret = app.me?.signed_in ? ` -H "Authorization: Bearer $JOBWIRE_API_KEY"` : "";
  return `curl ${stream}${location.origin}${key.path}${secret}`;
};

const value = (field) =>
  html`${field.value === "" ? html`<span class="zero">empty</span>` : dotted(field.value)}${field.cut ? html`<span class="muted">… ${count(field.cut)} more</span>` : nothing}`;
const fieldsView = (fields) =>
  html`<table class="fields mono"><tbody>${fields.map(
    (field) =>
      html`<tr><td>${field.name}</td><td>${value(field)}</td>
  <td class="right">${field.extra ? html`<span class="tag">ours</span>` : nothing}</td></tr>`,
  )}</tbody></table>`;

const entryView = (entry) =>
  html`<tr><td class="muted">${entry.id}</td><td>${entry.fields.map((field) => html`<span class="muted">${field.name}</span> ${value(field)}  `)}</td><td></td></tr>`;

function keyView(key, readAt, jobId, first) {
  const left = key.ttl_ms == null ? null : Math.max(0, key.ttl_ms - (Date.now() - readAt));
  const text = commandOf(key);
  const what =
    key.note ||
    (key.type === "hash"
      ? plural(key.size, "field")
      : key.type === "stream"
        ? plural(key.size, "entry", "entries")
        : "");
  return html`<details class="key" ?open=${first}><summary>${icon("chevron")}<code class="bold cut">${key.key.replace(jobId, shortId(jobId))}</code><span class="tag">${key.type}</span>
    <span class="muted cut">${what}</span><span class="grow"></span><span class="muted nowrap">${left === null ? "no TTL" : html`TTL ${left > 3600e3 ? `${age(left)} ${Math.floor((left % 60e3) / 1000)} s` : duration(left)}`}</span></summary>
    <div class="in"><div class="row wrap">${text ? command(text) : html`<span class="muted small">No HTTP form; read it with valkey-cli.</span>`}${copyButton(key.key, "Copy key")}</div>
      ${key.pending ? html`<p class="small gap">Leased by <code>${key.pending.consumer}</code>, renewed ${duration(key.pending.idle_ms)} ago, ${plural(key.pending.deliveries, "delivery", "deliveries")}.</p>` : nothing}
      ${key.fields ? html`${fieldsView(key.fields)}<p class="muted tiny gap">Fields without a mark are those of the published contract. Other clients need only these.</p>` : nothing}
      ${key.entries ? html`<table class="fields mono"><tbody>${key.entries.map(entryView)}</tbody></table>` : nothing}
      ${key.value != null ? html`<p class="mono gap">${key.value}</p>` : nothing}</div></details>`;
}

export const wireView = (wire, readAt) =>
  html`<div class="tabhead"><span class="muted small grow">What is on the server now. Read only.</span>
    <span class="small muted wide">Copy as</span>${segments(
      [
        ["valkey-cli", "valkey-cli"],
        ["curl", "curl"],
      ],
      as,
      (chosen) => {
        as = chosen;
        update();
      },
      "Copy as",
    )}</div>
  ${wire ? wire.keys.map((key, i) => keyView(key, readAt, wire.job_id, i === 0)) : html`<p class="muted small">Reading the keys…</p>`}`;
