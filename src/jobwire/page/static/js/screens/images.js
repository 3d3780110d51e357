// Images: send a photo, follow its stages, see what was published. Originals are never shown.
import {
  html,
  nothing,
  icon,
  state,
  copy,
  copyButton,
  command,
  empty,
  openRow,
  refusalView,
  timeAgo,
} from "../ui.js";
import { repeat } from "../../vendor/lit-html/directives/repeat.js";
import { app, may, update } from "../store.js";
import { call, get } from "../api.js";
import { ask } from "../dialog.js";
import { bytes, count, duration, megabytes, plural, shortId } from "../format.js";
import { forget, picture, thumbnail } from "../pictures.js";
import { go, link } from "../router.js";
import { pollNow } from "../poll.js";
import { addFiles, dismiss, ended, inWork, uploads } from "../uploads.js";

const PAGE = 20;
const MOST = 100;
const STAGES = ["validating", "decoding", "processing", "encoding", "uploading", "done"];
const DOING = {
  queued: "waiting",
  validating: "checking it",
  decoding: "decoding it",
  processing: "looking for faces",
  encoding: "encoding it",
  uploading: "storing it",
  done: "done",
};
const HELD_FOR = {
  none_found: "Nothing was found to hide.",
  doubtful: "It is not certain that all hidden areas are faces.",
  mostly_hidden: "More than a third of the photo would be hidden.",
};
const heldPath = (id) => `/v1/images/${encodeURIComponent(id)}/held`;
const MOST_AREAS = 16;
const picturePath = (id) => `/v1/images/${encodeURIComponent(id)}/picture`;
const at = (text) => Date.parse(text);

const stageBar = (stage, failedAt = "") => {
  const reached = STAGES.indexOf(failedAt || stage);
  const cls = (i) =>
    failedAt && i === reached
      ? "bad"
      : stage === "done"
        ? "done"
        : i <= reached && !(failedAt && i === reached)
          ? "on"
          : "";
  return html`<span class="stages" role="img" aria-label=${failedAt ? `failed at ${failedAt}` : `stage: ${stage}`}>${STAGES.map((_, i) => html`<i class=${cls(i)}></i>`)}</span>`;
};

// What was hidden, in words: by kind, if the picture was read, else the number; unknown is blank.
function hiddenWords(image, text) {
  if (image.hidden_areas === 0 || text === "none") return "nothing was found to hide";
  const part = image.hidden_part == null ? "" : ` (${percent(image.hidden_part)} of the picture)`;
  const most = image.mostly_hidden ? "mostly hidden: " : "";
  if (!text)
    return image.hidden_areas == null
      ? ""
      : `${most}${plural(image.hidden_areas, "area")} hidden${part}`;
  const named = (label) => (label === "drawn" ? "drawn area" : label);
  const parts = [...new URLSearchParams(text)].map(([label, n]) =>
    plural(Number(n) || 0, named(label)),
  );
  return `${most}${parts.join(", ")} hidden${part}`;
}

const percent = (part) => (part < 0.01 ? "under 1 %" : `${Math.round(part * 100)} %`);

const saved = (before, after) => {
  const percent = Math.round((1 - after / before) * 100);
  return percent > 0 ? `${percent} % smaller` : "not smaller";
};

const stateOf = (image) =>
  ({ ready: "done", failed: "failed" })[image.status] ??
  (!image.stage || image.stage === "queued" ? "waiting" : "running");
const stateView = (image) => (image.held ? state("running", "In review") : state(stateOf(image)));
const nameOf = (image) => image.filename || "photo";
const webpName = (image) => `${nameOf(image).replace(/\.[^.]*$/, "") || "photo"}.webp`;

class Images {
  images = null;
  page = null;
  older = false;
  one = null; // the image of the URL, if it is not in the list
  gone = false;
  deleted = new Set(); // ids; a list that was read before the deletion may come after it
  marked = { id: "", areas: [] }; // on the held photo that is shown
  decided = ""; // a held photo that was approved or rejected here
  drawing = null; // the area under the pointer
  from = null; // where it began
  over = false; // a file is held over the drop zone
  refusal = "";
  title = () => "Images";

  constructor(route) {
    this.changed(route);
    addEventListener("dragover", stopDrop);
    addEventListener("drop", stopDrop);
  }

  close() {
    removeEventListener("dragover", stopDrop);
    removeEventListener("drop", stopDrop);
  }

  changed(route) {
    this.id = route.parts[1] ?? "";
    this.one = null;
    this.gone = false;
  }

  async poll() {
    const [page, one] = await Promise.all([
      this.older ? null : get("/v1/images", { limit: PAGE }),
      this.wanted(),
    ]);
    if (page && !this.older) [this.page, this.images] = [page, this.left(page)];
    this.one = one;
  }

  left = (page) => page.images.filter((image) => !this.deleted.has(image.image_id));

  // The image of the URL; a link may lead to one that is on no page of the list yet.
  async wanted() {
    const { id } = this;
    if (!id || this.images?.some((image) => image.image_id === id)) return null;
    if (this.one?.image_id === id && this.one.status !== "processing") return this.one;
    try {
      return await get(`/v1/images/${encodeURIComponent(id)}`);
    } catch (problem) {
      if (problem.status !== 404) throw problem;
      if (id === this.id) this.gone = true;
      return null;
    }
  }

  further = async () => {
    try {
      const page = await get("/v1/images", { limit: PAGE, cursor: this.page.cursor });
      this.older = true;
      this.images = [...this.images, ...this.left(page)].slice(-MOST);
      this.page = page;
    } catch (problem) {
      this.refusal = problem.message;
    }
    update();
  };

  newest = () => {
    this.older = false;
    pollNow();
  };

  shown() {
    const { id } = this;
    if (id) return this.images?.find((image) => image.image_id === id) ?? this.one;
    return this.images?.find((image) => image.status === "ready");
  }

  take(files) {
    this.over = false;
    addFiles(files, this.page?.max_size);
    if (this.id) go("#/images");
  }

  drop() {
    if (!may("submit")) return nothing;
    const off = (app.parts ?? []).find((part) => part.name === "uploads" && part.note);
    const most = this.page?.max_size ? ` up to ${megabytes(this.page.max_size)}` : "";
    return html`<div class="drop ${this.over ? "over" : ""}"
        @dragover=${() => {
          if (!this.over) update();
          this.over = true;
        }}
        @dragleave=${(event) => {
          if (event.currentTarget.contains(event.relatedTarget)) return;
          this.over = false;
          update();
        }}
        @drop=${(event) => this.take(event.dataTransfer.files)}>
      ${icon("upload")}
      <div class="grow"><b class="bold wide">Drop a photo here, or </b><label class="choose"><input type="file" accept="image/jpeg,image/png,image/webp,image/avif" multiple
          @change=${(event) => {
            this.take(event.target.files);
            event.target.value = "";
          }} /><span class="link bold"><span class="wide">choose one</span><span class="phone">Choose a photo</span></span></label>
        <p class="muted small">JPEG, PNG, WebP, AVIF or HEIC${most}. ${off ? nothing : "Faces are hidden and metadata is removed before it is stored."}</p></div></div>
      ${off ? html`<div class="notice gap">${icon("warn")}<div>${off.note}. <span class="soft">${off.what_to_do ?? ""}</span></div></div>` : nothing}`;
  }

  // The photos that were sent from this tab and are not published, or were refused.
  sent() {
    const rows = uploads.filter((upload) => upload.state !== "ready");
    if (!rows.length) return nothing;
    return html`<section><header><h2>Sent from here</h2><span class="grow"></span><span class="muted small">${inWork() ? `${count(inWork())} being processed` : ""}</span></header>
      <ul class="sent">${repeat(
        rows,
        (upload) => upload.number,
        (upload) => this.upload(upload),
      )}</ul></section>`;
  }

  upload(upload) {
    const { name, size, state: now, sent, stage, words, code } = upload;
    const doing =
      now === "waiting"
        ? "waits for the others"
        : now === "sending"
          ? `sending, ${Math.round(sent * 100)} %`
          : (DOING[stage] ?? "accepted");
    return html`<li><b class="bold cut">${name}</b><span class="muted small nowrap">${bytes(size)}</span>
      ${now === "failed" ? state("failed") : state(now === "waiting" ? "waiting" : "running", now === "sending" ? "Sending" : now === "waiting" ? "Waiting" : "Processing")}
      ${stageBar(stage, now === "failed" ? (upload.failedAt ?? "") : "")}
      <span class="says ${now === "failed" ? "failed" : "muted"}">${now === "failed" ? html`${words}${code && code === code.toUpperCase() ? html` <code class="tiny">${code}</code>` : nothing}` : doing}</span>
      <span class="right">${ended(upload) ? html`<button class="copy" aria-label="Remove ${name} from this list" title="Remove from this list" @click=${() => dismiss(upload)}>${icon("close")}</button>` : nothing}</span></li>`;
  }

  remove(image) {
    const path = `/v1/images/${encodeURIComponent(image.image_id)}`;
    ask(
      `Delete ${nameOf(image)}?`,
      "The published photo is deleted in all its versions. This cannot be undone.",
      async () => {
        try {
          await call("DELETE", path);
          forget(picturePath(image.image_id));
          for (const upload of uploads.filter((each) => each.id === image.image_id))
            dismiss(upload);
          this.deleted.add(image.image_id);
          this.images = this.images.filter((each) => !this.deleted.has(each.image_id));
          this.refusal = "";
          if (this.id) go("#/images");
          this.id = ""; // it is not read again
          this.newest();
        } catch (problem) {
          this.refusal = problem.message;
        }
        update();
      },
      { yes: "Delete", no: "Keep it", danger: true },
    );
  }

  detail(image) {
    const ready = image.status === "ready";
    const found = ready ? picture(picturePath(image.image_id)) : null;
    const took = at(image.updated_at) - at(image.created_at);
    return html`<section class="shown"><header><h2 class="cut">${this.id ? nameOf(image) : "Newest result"}</h2>${ready ? nothing : stateView(image)}<span class="grow"></span>
        <span class="muted small nowrap">${ready ? html`ready ${timeAgo(at(image.updated_at))}, ${duration(took)} in all` : nothing}</span></header>
      ${ready ? this.published(image, found) : image.status === "failed" ? html`<div class="notice bad">${icon("warn")}<div><b class="bold">${image.error?.message}</b> <code>${image.error?.code}</code><div class="soft">Nothing of it was published; the original is deleted.</div></div></div>` : image.held ? this.held(image) : html`<div class="row">${stageBar(image.stage ?? "")}<span class="muted small">${image.stage === "queued" ? "announced; the photo has not arrived yet" : (DOING[image.stage] ?? "")}</span></div>`}
      ${ready ? nothing : html`<div class="row gap">${this.deleteButton(image)}</div>`}</section>`;
  }

  // A photo that waits for a reviewer, who may draw areas on it with the pointer.
  held(image) {
    const why = HELD_FOR[image.held_for] ?? HELD_FOR.none_found;
    if (!may("admin"))
      return html`<div class="notice">${icon("warn")}<div>${why} A reviewer with the scope admin decides.</div></div>`;
    if (this.decided === image.image_id) return html`<p class="soft">The decision was sent.</p>`;
    const found = picture(heldPath(image.image_id));
    if (this.marked.id !== image.image_id) this.marked = { id: image.image_id, areas: [] };
    const { areas } = this.marked;
    const shown = this.drawing ? [...areas, this.drawing] : areas;
    const place = ({ left, top, width, height }) =>
      `left:${left * 100}%;top:${top * 100}%;width:${width * 100}%;height:${height * 100}%`;
    return html`<p class="soft">${why} Draw over what must not be seen, then approve or reject the photo.</p>
      ${found.url ? html`<div class="draw" @pointerdown=${this.beginArea} @pointermove=${this.moveArea} @pointerup=${this.endArea} @pointercancel=${this.endArea}><img draggable="false" src=${found.url} alt="The photo ${nameOf(image)}, which waits for a reviewer" />${shown.map((area) => html`<i .style=${place(area)}></i>`)}</div>` : html`<div class="pic hole">${found.error ?? ""}</div>`}
      <div class="row wrap gap"><button class="btn slim" ?disabled=${!areas.length} @click=${() => this.hide(image)}>Hide ${plural(areas.length, "area")}</button>
        <button class="btn slim" ?disabled=${!areas.length} @click=${() => this.clearAreas()}>Clear</button>
        ${image.held_for === "doubtful" ? html`<button class="btn slim" @click=${() => this.hide(image, true)}>Show what is doubtful</button>` : nothing}
        <button class="btn slim primary" ?disabled=${areas.length > 0 || !found.url} @click=${() => this.decide(image, "approve")}>Approve</button>
        <button class="btn slim danger" @click=${() => this.decide(image, "reject")}>Reject</button></div>`;
  }

  at = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const part = (value) => Math.min(0.9999, Math.max(0, value));
    return [
      part((event.clientX - box.left) / box.width),
      part((event.clientY - box.top) / box.height),
    ];
  };

  beginArea = (event) => {
    if (this.marked.areas.length >= MOST_AREAS) return;
    event.preventDefault();
    event.currentTarget.setPointerCapture(event.pointerId);
    this.from = this.at(event);
  };

  moveArea = (event) => {
    if (!this.from) return;
    const [x, y] = this.at(event);
    const [fromX, fromY] = this.from;
    const [left, top] = [Math.min(x, fromX), Math.min(y, fromY)];
    this.drawing = { left, top, width: Math.abs(x - fromX), height: Math.abs(y - fromY) };
    update();
  };

  endArea = () => {
    const { drawing } = this;
    this.from = this.drawing = null;
    if (drawing?.width > 0.005 && drawing.height > 0.005) this.marked.areas.push(drawing);
    update();
  };

  clearAreas() {
    this.marked.areas = [];
    update();
  }

  hide(image, doubtful = false) {
    const body = JSON.stringify({ areas: this.marked.areas, show_doubtful: doubtful });
    return this.ask(image, "PUT", "areas", { body });
  }

  decide(image, verb) {
    if (verb === "approve") return this.ask(image, "POST", verb);
    return ask(
      `Reject ${nameOf(image)}?`,
      "The photo is deleted and never published.",
      () => this.ask(image, "POST", verb),
      { yes: "Reject", no: "Keep it", danger: true },
    );
  }

  async ask(image, method, verb, more) {
    try {
      await call(method, `/v1/images/${encodeURIComponent(image.image_id)}/${verb}`, more);
      this.refusal = "";
      this.marked.areas = [];
      forget(heldPath(image.image_id)); // it is made again with the areas
      if (verb !== "areas") this.decided = image.image_id; // its picture is not read again
      pollNow();
    } catch (problem) {
      this.refusal = problem.message;
    }
    update();
  }

  deleteButton = (image) =>
    may("submit")
      ? html`<button class="btn slim danger" @click=${() => this.remove(image)}>Delete</button>`
      : nothing;

  published(image, found) {
    const { facts } = found;
    const hidden = hiddenWords(image, facts?.hidden);
    const rows = [
      ["File", nameOf(image)],
      ["Id", html`<code>${shortId(image.image_id)}</code>${copy(image.image_id, "id")}`],
      image.width && ["Size", `${image.width} × ${image.height}`],
      image.file_size && [
        "Bytes",
        facts?.size
          ? html`${bytes(image.file_size)} of ${bytes(facts.size)}, <b class="bold">${saved(facts.size, image.file_size)}</b>`
          : bytes(image.file_size),
      ],
      hidden && ["Privacy", html`<b class="bold">${hidden}</b>, no metadata`],
      image.sha256 && [
        "SHA-256",
        html`<code>${shortId(image.sha256)}</code>${copy(image.sha256, "SHA-256")}`,
      ],
    ].filter(Boolean);
    return html`<div class="versions">
      <div class="orig wide"><b class="bold soft">Original</b>${image.original_width ? html`<span>${image.original_width} × ${image.original_height}</span>` : nothing}${facts?.size ? html`<span>${bytes(facts.size)}</span>` : nothing}<span>deleted,<br />never shown</span></div>
      <span class="to wide">${icon("arrow")}</span>
      ${found.url ? html`<img class="pic" src=${found.url} alt="The published photo ${nameOf(image)}" width=${image.width ?? 1} height=${image.height ?? 1} />` : html`<div class="pic hole">${found.error ?? ""}</div>`}
      <div><dl class="facts">${rows.map(([term, value]) => html`<dt>${term}</dt><dd>${value}</dd>`)}</dl>
        <div class="row wrap gap">${found.url ? html`<a class="btn slim" href=${found.url} download=${webpName(image)}>${icon("download")}Download</a>` : nothing}${image.url ? copyButton(image.url, "Copy link") : nothing}${this.deleteButton(image)}</div></div></div>`;
  }

  note(image) {
    if (image.status === "failed") return html`<span class="failed">${image.error?.message}</span>`;
    if (image.held) return "waits for a reviewer";
    if (image.status !== "ready")
      return image.stage === "queued" ? "not uploaded yet" : (DOING[image.stage] ?? "");
    const hidden = hiddenWords(image, picture(picturePath(image.image_id)).facts?.hidden);
    return [
      image.width && `${image.width} × ${image.height}`,
      image.file_size && bytes(image.file_size),
      hidden,
    ]
      .filter(Boolean)
      .join(", ");
  }

  row(image) {
    const ready = image.status === "ready";
    const failedAt = uploads.find((each) => each.id === image.image_id)?.failedAt ?? "";
    return html`<tr class=${this.id === image.image_id ? "picked" : ""} @click=${openRow}>
      <td class="th">${thumbnail(ready ? picturePath(image.image_id) : "", "")}</td>
      <td class="state">${stateView(image)}</td>
      <td class="bold cut name"><a href=${link(["images", image.image_id])}>${nameOf(image)}</a></td>
      <td class="hide">${image.status === "failed" && !failedAt ? nothing : stageBar(ready ? "done" : (image.stage ?? ""), failedAt)}</td>
      <td class="muted cut says">${this.note(image)}</td>
      <td class="right muted at">${timeAgo(at(image.updated_at))}</td></tr>`;
  }

  list() {
    if (!this.images) return nothing;
    if (!this.images.length)
      return uploads.length
        ? nothing
        : empty(
            "No image yet.",
            may("submit")
              ? "Send a photo from here, or from a terminal:"
              : "Send a photo from a terminal:",
            command("jobwire images put photo.jpg --follow"),
          );
    return html`<section><header><h2>Images</h2><span class="grow"></span><span class="muted small">newest first</span></header>
      <table class="hit media"><thead><tr><th><span class="vh">Picture</span></th><th>State</th><th>File</th><th>Stage</th><th>Note</th><th class="right">Changed</th></tr></thead>
        <tbody>${repeat(
          this.images,
          (image) => image.image_id,
          (image) => this.row(image),
        )}</tbody></table>
      <div class="scan"><span>${this.page.cursor ? html`${plural(this.images.length, "image")} shown, there are older ones.` : html`${plural(this.images.length, "image")}${this.older ? nothing : ", that is all"}.`}</span>
        ${this.page.cursor ? html`<button class="btn slim" @click=${this.further}>Look further</button>` : nothing}
        ${this.older ? html`<button class="btn slim" @click=${this.newest}>Back to the newest</button>` : nothing}</div></section>`;
  }

  view() {
    const image = this.shown();
    return html`${this.drop()}
      ${refusalView(this.refusal)}
      ${this.sent()}
      ${image ? this.detail(image) : this.gone ? empty("No such image.", "It was deleted, or belongs to another tenant.", html`<a class="btn" href="#/images">All images</a>`) : nothing}
      ${this.list()}`;
  }
}

// A file that misses the drop zone must not replace the page.
function stopDrop(event) {
  event.preventDefault();
}

export const open = (route) => new Images(route);
