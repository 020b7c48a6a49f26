// State and helpers that all parts of the page share. File names and labels are only set as text.

export const $ = (id) => document.getElementById(id);
export const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

export const run = { tasks: [], classes: null, colour_maps: [] };
export const images = new Map(); // id to { row, item }: the data of an image and its list item
export const page = {
  currentId: null,
  details: null, // of the current image
  task: 0, // run.tasks.length stands for all tasks
  patchClass: null, // show only patches of this class
  showAllClasses: false,
  map: null,
  layers: {},
};

// Children that are strings become text.
export function element(tag, className = "", ...children) {
  const created = document.createElement(tag);
  created.className = className;
  created.append(...children);
  return created;
}

export const formatNumber = (value) => value.toLocaleString("en-US");
export const formatPercent = (value) => (value >= 0.0995 ? Math.round(100 * value) : (100 * value).toFixed(1)) + " %";
export const hasSeveralTasks = () => run.tasks.length > 1;
export const isPending = (row) => row.state === "waiting" || row.state === "running";

export async function fetchJson(address) {
  const response = await fetch(address, { cache: "no-store" });
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

export function showNotice(text, small = false) {
  $("notice").hidden = !text;
  $("notice").classList.toggle("small", small);
  $("notice").textContent = text || "";
}
