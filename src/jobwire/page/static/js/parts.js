// What is loaded when it is first needed: styles, and parts of a screen.
import { nothing } from "../vendor/lit-html/lit-html.js";
import { update } from "./store.js";

const styles = {};

function load(name) {
  return new Promise((resolve, reject) => {
    const sheet = Object.assign(document.createElement("link"), { rel: "stylesheet", href: `style/${name}.css`, onload: resolve });
    sheet.onerror = () => {
      delete styles[name];
      sheet.remove();
      reject(new Error(`style/${name}.css could not be loaded`));
    };
    document.head.append(sheet);
  });
}

// A module; its styles are there before it is drawn.
export const styled = async (names, module) => (await Promise.all([module, ...names.split(" ").map((name) => (styles[name] ??= load(name)))]))[0];

// A part of a screen: part(load)(draw) is nothing until the module is there, then draw(module).
export function part(load) {
  let module = null;
  let loading = null;
  const loaded = (found) => {
    module = found;
    update();
  };
  const failed = () => (loading = null); // the next rendering tries again
  return (draw) => {
    if (module) return draw(module);
    loading ??= load().then(loaded, failed);
    return nothing;
  };
}
