// The prediction of the current image, and its attention.

import { $, element, formatNumber, formatPercent, hasSeveralTasks, page, reducedMotion, run } from "./page.js";

const MAX_CLASSES = 12; // listed at first
const MAX_PATCHES = 60; // in the gallery
// The ten class colours of `ips explain`.
const PALETTE = [
  "#0072b2", "#ffa90e", "#bd1f01", "#33bbee", "#7b68ee",
  "#ee7733", "#b2df8a", "#ffaabb", "#a96b59", "#717581",
];
const OUTLINE = "#ffa90e";
// Stops of the slider "Show top": the share of the map that is visible, highest ranks first.
export const TOP_SHARES = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1];

export function showAnswer() {
  const { details } = page;
  const answer = !details.error && details.answer;
  $("image-name").textContent = details.name;
  const size = details.error ? "" : `${formatNumber(details.width)} × ${formatNumber(details.height)} px`;
  const all = answer && answer.tissue ? "patches with tissue" : "patches";
  const kept = answer ? `\n${formatNumber(answer.count)} of ${formatNumber(answer.patches)} ${all} kept` : "";
  $("facts").textContent = size + kept;
  $("annotations-label").hidden = !details.annotated;
  $("task-section").hidden = !hasSeveralTasks();
  showProbabilities();
  showAttention();
  showPatches();
}

function probabilityBar(name, value, isPredicted) {
  const label = element("span", "name", name);
  label.title = name;
  const fill = element("div", "fill");
  fill.style.width = `${100 * value}%`;
  const track = element("span", "track", fill);
  return element("li", isPredicted ? "predicted" : "", label, track, element("span", "value", value.toFixed(2)));
}

function summaryRow(task, { names, probability }) {
  const predicted = element("span", "predicted", names.join(" ") || "none");
  const value = element("span", "value", probability?.toFixed(2) ?? "");
  return element("li", "", element("span", "name", task), predicted, value);
}

export function showProbabilities() {
  const list = $("probabilities");
  list.replaceChildren();
  $("more").hidden = true;
  if (!page.details?.answer) return;
  const { probabilities, predictions } = page.details.answer;
  const isSummary = page.task === run.tasks.length;
  list.classList.toggle("summary", isSummary || !probabilities[page.task].length);
  if (isSummary) {
    list.append(...run.tasks.map((task, i) => summaryRow(task, predictions[i])));
    return;
  }
  if (!probabilities[page.task].length) { // a number, such as that of a regression
    list.append(summaryRow(run.tasks[page.task], predictions[page.task]));
    return;
  }
  const predicted = new Set(predictions[page.task].names);
  let classes = probabilities[page.task];
  if (classes.length > MAX_CLASSES && !page.showAllClasses) {
    $("more").textContent = `all ${formatNumber(classes.length)} classes`;
    $("more").hidden = false;
    classes = [...classes].sort((a, b) => b[1] - a[1]).slice(0, MAX_CLASSES);
  }
  list.append(...classes.map(([name, p]) => probabilityBar(name, p, predicted.has(name))));
}

// A new layer covers the previous one, which is removed once the new one is loaded. (Leaflet's
// setUrl would request tiles of a fractional zoom.)
export function showAttention() {
  const previous = page.layers.attention || [];
  delete $("map").dataset.attention; // set again once the layer is loaded
  if (!page.map || !page.details?.answer || !$("attention").checked) {
    previous.forEach((layer) => layer.remove());
    page.layers.attention = [];
    return;
  }
  const minRank = (1 - TOP_SHARES[$("top").value]).toFixed(3);
  const { id, modified } = page.details;
  const query = `task=${page.task}&colour_map=${$("colour-maps").value}&min_rank=${minRank}&modified=${modified}`;
  const layer = L.tileLayer(`attention/${id}/{z}/{x}/{y}?${query}`, {
    ...page.layers.options,
    opacity: Number($("opacity").value),
  });
  page.layers.attention = [...previous, layer];
  layer.on("load", () => {
    if (layer !== page.layers.attention?.at(-1)) return;
    page.layers.attention.slice(0, -1).forEach((old) => old.remove());
    page.layers.attention = [layer];
    $("map").dataset.attention = query;
  });
  layer.addTo(page.map);
}

// The kept patches, sorted by their attention for the current task.

function sortedPatches() {
  const { kept, attention, classes } = page.details.answer;
  return kept
    .map(([x, y], rank) => ({ x, y, rank, attention: attention[page.task][rank], class: classes?.[rank] }))
    .filter((patch) => page.patchClass === null || patch.class === page.patchClass)
    .sort((a, b) => b.attention - a.attention);
}

const patchColour = (patch) => (patch.class === undefined ? OUTLINE : PALETTE[Math.min(patch.class, 9)]);
const patchBounds = ({ x, y }) => [[y, x], [y + page.details.answer.extent, x + page.details.answer.extent]];
const className = (patch) => (patch.class === undefined ? "" : run.classes[patch.class]);

function addRectangle(patch, weight, layer) {
  const style = { color: patchColour(patch), weight, fill: false, interactive: false };
  L.rectangle(patchBounds(patch), style).addTo(layer);
}

function galleryItem(patch) {
  const name = className(patch);
  const share = formatPercent(patch.attention);
  const picture = element("img");
  picture.src = `patches/${page.details.id}/${patch.rank}?modified=${page.details.modified}`;
  picture.loading = "lazy";
  picture.alt = "";
  if (patch.class !== undefined) picture.style.setProperty("--class-colour", patchColour(patch));
  const caption = element("span", "caption", element("span", "", share), element("span", "class", name));
  const button = element("button", "", picture, caption);
  const position = `x ${formatNumber(patch.x)}, y ${formatNumber(patch.y)}`;
  button.title = `${position}: ${share} of the attention among the kept patches${name ? `, class ${name}` : ""}`;
  button.setAttribute("aria-label", `Go to the patch at ${button.title}`);
  button.addEventListener("click", () => goTo(patch, button));
  return element("li", "", button);
}

export function showPatches() {
  const answer = page.details?.answer;
  $("gallery").replaceChildren();
  page.layers.outlines?.clearLayers();
  page.layers.selected?.clearLayers();
  $("classes").hidden = !(answer?.classes && run.classes);
  $("gallery-section").hidden = !answer;
  if (!page.map || !answer) return;
  const patches = sortedPatches();
  $("gallery").append(...patches.slice(0, MAX_PATCHES).map(galleryItem));
  if ($("outlines").checked) patches.reverse().forEach((patch) => addRectangle(patch, 1.5, page.layers.outlines));
}

function goTo(patch, button) {
  if (!page.details?.answer) return;
  $("gallery").querySelector("[aria-current]")?.removeAttribute("aria-current");
  button.setAttribute("aria-current", "true");
  page.layers.selected.clearLayers();
  addRectangle(patch, 3.5, page.layers.selected);
  const bounds = L.latLngBounds(patchBounds(patch)).pad(1.5);
  if (reducedMotion.matches) page.map.fitBounds(bounds, { animate: false });
  else page.map.flyToBounds(bounds, { duration: 0.6 });
}
