"use strict";

const chat = document.getElementById("chat");
const form = document.getElementById("send");
const file = document.getElementById("file");
const caption = document.getElementById("caption");
const shown = new Map();

function show(message) {
  let box = shown.get(message.id);
  if (!box) {
    box = document.createElement("article");
    box.className = "message " + message.author;
    box.id = "message-" + message.id;
    shown.set(message.id, box);
    chat.append(box);
  }
  const state = JSON.stringify(message);
  if (box.dataset.state === state) return;
  box.dataset.state = state;
  box.replaceChildren();
  if (message.picture) {
    const image = document.createElement("img");
    image.alt = message.author === "bot" ? "The model's picture" : "Your photo";
    image.addEventListener("load", () => box.scrollIntoView({ block: "end" }));
    image.src = message.picture;
    box.append(image);
  }
  if (message.text) {
    const text = document.createElement("p");
    text.textContent = message.text;
    box.append(text);
  }
  box.scrollIntoView({ block: "end" });
}

async function follow() {
  let seen = 0;
  for (;;) {
    try {
      const answer = await fetch("/demo/messages?seen=" + seen);
      if (!answer.ok) throw new Error(String(answer.status));
      const body = await answer.json();
      seen = body.revision;
      body.messages.forEach(show);
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }
}

file.addEventListener("change", () => {
  document.getElementById("name").textContent = file.files[0]?.name ?? "Choose a photo";
});

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const photo = file.files[0];
  if (!photo) return;
  const button = form.querySelector("button");
  button.disabled = true;
  try {
    await fetch("/demo/photos?caption=" + encodeURIComponent(caption.value), {
      method: "POST",
      headers: { "Content-Type": photo.type || "application/octet-stream" },
      body: photo,
    });
    form.reset();
    document.getElementById("name").textContent = "Choose a photo";
  } finally {
    button.disabled = false;
  }
});

follow();
