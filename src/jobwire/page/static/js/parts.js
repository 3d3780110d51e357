// What is loaded when it is first needed: styles, and parts of a screen.
import { nothing } from "../vendor/lit-html/lit-html.js";
import { update } from "./store.js";

const AGAIN_MS = 2000;
const RELOADED = "jobwire.reloaded";
const styles = {};

const load = (name) =>
  new Promise((resolve, reject) => {
    const sheet = Object.assign(document.createElement("link"), {
      rel: "stylesheet",
      href: `style/${name}.css`,
      onload: resolve,
      onerror: reject,
    });
    document.head.append(sheet);
  });

// A module; its styles are there before it is drawn.
export async function styled(names, module) {
  try {
    return (
      await Promise.all([module, ...names.split(" ").map((name) => (styles[name] ??= load(name)))])
    )[0];
  } catch (failure) {
    reloadWhenBack();
    throw failure;
  }
}

// A browser does not load a module again that has failed once. So the page is loaded anew when the
// gateway answers, unless the reader has gone on; once in a minute, where something else is wrong.
async function reloadWhenBack() {
  const { hash } = location;
  const answers = () =>
    fetch(location.pathname, { cache: "no-store" }).then(
      (answer) => answer.ok,
      () => false,
    );
  while (!(await answers())) await new Promise((done) => setTimeout(done, AGAIN_MS));
  if (location.hash !== hash || Date.now() - Number(sessionStorage.getItem(RELOADED)) < 60000)
    return;
  sessionStorage.setItem(RELOADED, Date.now());
  location.reload();
}

// A part of a screen: part(load)(draw) is nothing until the module is there, then draw(module).
export function part(load) {
  let module = null;
  let loading = null;
  const loaded = (found) => {
    module = found;
    update();
  };
  return (draw) => {
    if (module) return draw(module);
    loading ??= load().then(loaded, () => {});
    return nothing;
  };
}
