// What the parts of the page share. What comes from a file's name or a label is only ever set as text.

export const $ = (id) => document.getElementById(id);
export const still = matchMedia("(prefers-reduced-motion: reduce)");

export const run = { tasks: [], classes: null, colours: [] };
export const images = new Map(); // id to what the list knows of an image
export const page = {
  current: null, // id
  shown: null, // details of the current image
  task: 0, // the number of tasks means all of them
  readAs: null, // a class that patches have to be read as
  all: false, // every class is listed
  map: null,
  layers: {},
};

export const element = (tag, name, text) => {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
};

export const number = (value) => value.toLocaleString("en-US");
export const percent = (value) => (value >= 0.0995 ? Math.round(100 * value) : (100 * value).toFixed(1)) + " %";
export const several = () => run.tasks.length > 1;

export async function ask(address) {
  const response = await fetch(address, { cache: "no-store" });
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

export function notice(text, small = false) {
  $("notice").hidden = !text;
  $("notice").classList.toggle("small", small);
  $("notice").textContent = text || "";
}
