// State and helpers that all parts of the page share. File names and labels are only set as text.

export const $ = (id) => document.getElementById(id);
export const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

export const run = { tasks: [], classes: null, colour_maps: [], labelled: false, share_range: [1, 100] };
export const images = new Map(); // id to { row, item }: an image, or the images of a patient, and its list item
export const page = {
  currentId: null,
  image: 0, // number of the current image among those of a patient
  details: null, // of the current image, and the answer for the patient
  task: 0, // run.tasks.length stands for all tasks
  part: 0, // number of the magnification
  patchClass: null, // show only patches of this class
  showAllClasses: false,
  queue: { all: false, paused: false, busy: true }, // what the server predicts
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
export const imageNames = () => images.get(page.currentId)?.row.images ?? [];
export const isPending = (row) => row.state === "waiting" || row.state === "running";

// A multiple of an even share of the attention.
export function formatRatio(value) {
  if (value < 0.1) return "<0.1×";
  return `${value < 9.95 ? value.toFixed(1) : formatNumber(Math.round(value))}×`;
}

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

// A control is inactive if there is nothing to control.
export function updateControls() {
  const rows = [...images.values()].map(({ row }) => row);
  const { details, queue } = page;
  const answer = details?.answer;
  const isWaiting = rows.some((row) => row.state === "waiting");
  $("filter").disabled = rows.length < 2;
  $("wrong").disabled = !run.labelled;
  $("predict-all").disabled = !isWaiting || (queue.all && !queue.paused);
  $("pause").disabled = !queue.paused && !(queue.busy && rows.some(isPending));
  $("pause").textContent = queue.paused ? "Resume" : "Pause";
  for (const tool of $("tools").children) tool.disabled = !page.map;
  $("attention").disabled = !answer;
  $("attention-settings").disabled = !answer || !$("attention").checked;
  $("outlines").disabled = !answer;
  $("annotations").disabled = !details?.annotated;
}
