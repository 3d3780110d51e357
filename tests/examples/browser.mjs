// As much of a browser as the page in examples/page needs: run with the page's address.
const [address] = process.argv.slice(2);
const html = await (await fetch(address)).text();
const script = /<script type="module">([\s\S]*?)<\/script>/.exec(html)[1];

const elements = new Map();
globalThis.document = {
  getElementById(id) {
    if (!html.includes(`id="${id}"`)) throw new Error(`the page has no ${id}`);
    if (!elements.has(id)) elements.set(id, { textContent: "" });
    return elements.get(id);
  },
};
const plainFetch = globalThis.fetch;
globalThis.fetch = (place, options) => plainFetch(new URL(place, address), options);
globalThis.EventSource = class extends EventSource {
  constructor(place) {
    super(new URL(place, address));
  }
  close() {
    super.close();
    console.log(document.getElementById("out").textContent);
  }
};
await import("data:text/javascript," + encodeURIComponent(script));
await document.getElementById("go").onclick();
