// The prediction of the current image, and its attention.

import { selectImage } from "./image.js";
import {
  $, element, formatNumber, formatPercent, formatRatio, hasSeveralTasks, imageNames, images, page, reducedMotion, run,
} from "./page.js";
import { showStrip } from "./strip.js";

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
  const names = imageNames();
  const place = names.length > 1 ? `${page.image + 1} of ${names.length}: ${names[page.image]}\n` : "";
  const size = details.error ? "" : `${formatNumber(details.width)} × ${formatNumber(details.height)} px`;
  const all = answer && answer.tissue ? "patches with tissue" : "patches";
  const kept = answer ? `\n${formatNumber(answer.count)} of ${formatNumber(answer.patches)} ${all} kept` : "";
  const screened = answer && answer.screened ? `\n${answer.screened}` : "";
  $("facts").textContent = place + size + kept + screened;
  $("task-section").hidden = !hasSeveralTasks();
  showProbabilities();
  showParts();
  showScale();
  showAttention();
  showPatches();
}

function probabilityBar(name, value, { isPredicted, isTrue }) {
  const label = element("span", "name", name);
  label.title = name;
  const fill = element("div", "fill");
  fill.style.width = `${100 * value}%`;
  const track = element("span", "track", fill);
  const truth = element("span", "truth", isTrue ? "true" : "");
  return element("li", isPredicted ? "predicted" : "", label, track, element("span", "value", value.toFixed(2)), truth);
}

// One line: a task or a word, the answer, and its probability or the true label.
function summaryRow(title, { names, probability, correct, note }, truth) {
  const answer = element("span", "predicted", names.join(" ") || "none");
  if (correct === false) answer.classList.add("wrong");
  const details = [note, truth && correct !== true && `true: ${truth.join(" ") || "none"}`].filter(Boolean);
  if (details.length) answer.append(element("span", "muted", ` ${details.join(", ")}`));
  const verdict = correct === null ? "" : correct ? "✓" : "✗";
  const value = element("span", "value", [probability?.toFixed(2), verdict].filter(Boolean).join(" "));
  return element("li", "summary", element("span", "name", title), answer, value);
}

export function showProbabilities() {
  const list = $("probabilities");
  list.replaceChildren();
  $("more").hidden = true;
  const answer = page.details?.answer;
  const truths = images.get(page.currentId)?.row.truths ?? [];
  const isSummary = page.task === run.tasks.length;
  list.classList.toggle("labelled", Boolean(truths[page.task]));
  if (!answer) return;
  const { probabilities, predictions } = answer;
  const addSummary = (i) => list.append(summaryRow(run.tasks[i], predictions[i], truths[i]));
  if (isSummary) {
    run.tasks.forEach((_, i) => addSummary(i));
    return;
  }
  if (predictions[page.task].number) addSummary(page.task); // a regression, or the risk of survival
  const predicted = new Set(predictions[page.task].names);
  const labels = new Set(truths[page.task]);
  let classes = probabilities[page.task];
  if (classes.length > MAX_CLASSES && !page.showAllClasses) {
    $("more").textContent = `all ${formatNumber(classes.length)} classes`;
    $("more").hidden = false;
    classes = [...classes].sort((a, b) => b[1] - a[1]).slice(0, MAX_CLASSES);
  }
  const bar = ([name, p]) => probabilityBar(name, p, { isPredicted: predicted.has(name), isTrue: labels.has(name) });
  list.append(...classes.map(bar));
}

// A model that reads several magnifications has a map and patches for each.
export function imageParts(image = page.image) {
  const parts = page.details?.answer?.parts ?? [];
  return parts.map((part, number) => ({ ...part, number })).filter((part) => part.image === image);
}

function showParts() {
  const parts = imageParts();
  page.part = Math.min(page.part, Math.max(parts.length - 1, 0));
  $("parts").hidden = parts.length < 2;
  $("parts").replaceChildren(...parts.map(({ magnification }, part) => {
    const button = element("button", "", `${magnification}×`);
    button.type = "button";
    button.tabIndex = part === page.part ? 0 : -1;
    button.setAttribute("role", "radio");
    button.setAttribute("aria-checked", String(part === page.part));
    button.addEventListener("click", () => selectPart(part));
    return button;
  }));
}

export function selectPart(part) {
  const count = imageParts().length;
  if (!count) return;
  page.part = (part + count) % count;
  showParts();
  showAttention();
  showPatches();
}

// Ranks always reach from the first colour to the last. The numbers below them, and the badge, say
// how large the differences are.
export function showScale() {
  const answer = page.details?.answer;
  const spread = answer?.spreads[page.task];
  const isRank = $("map-scale").value === "rank";
  const [low, high] = run.share_range;
  const fixed = [`≤${low}×`, `${Math.sqrt(low * high)}×`, `≥${high}×`];
  const ticks = isRank ? (answer?.scales[page.task] ?? []).map(formatRatio) : fixed;
  $("ticks").replaceChildren(...ticks.map((text) => element("span", "", text)));
  $("map-scale").options[0].text = imageNames().length > 1 ? "rank in this patient" : "rank in this image";
  $("ticks").title = "Attention as a multiple of an even share, which all patches would have if all had the same; where patches overlap, their mean";
  $("spread").textContent = spread?.text ?? "";
  $("uniform").hidden = !spread?.uniform || !$("attention").checked;
  $("uniform").title = spread?.text ?? "";
}

// How a map is drawn, for the address of its tiles.
export function mapQuery(part, modified) {
  const style = { colour_map: $("colour-maps").value, scale: $("map-scale").value, smooth: $("smooth").checked };
  const minRank = (1 - TOP_SHARES[$("top").value]).toFixed(3);
  return new URLSearchParams({ task: page.task, part, ...style, min_rank: minRank, modified }).toString();
}

// A new layer covers the previous one, which is removed once the new one is loaded. (Leaflet's
// setUrl would request tiles of a fractional zoom.)
export function showAttention() {
  const previous = page.layers.attention || [];
  delete $("map").dataset.attention; // set again once the layer is loaded
  showStrip();
  const part = imageParts()[page.part];
  if (!page.map || !part || !$("attention").checked) {
    previous.forEach((layer) => layer.remove());
    page.layers.attention = [];
    return;
  }
  const { id, image, modified } = page.details;
  const query = mapQuery(part.number, modified);
  const layer = L.tileLayer(`attention/${id}/${image}/{z}/{x}/{y}?${query}`, {
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

// The kept patches of all images of a patient, at one magnification, sorted by their attention for
// the current task.

function sortedPatches() {
  const { kept, attention, ratios, classes, parts, part_numbers } = page.details.answer;
  const magnification = imageParts()[page.part]?.magnification;
  const values = (rank) => ({ attention: attention[page.task][rank], ratio: ratios[page.task][rank] });
  return kept
    .map(([x, y], rank) => ({ ...parts[part_numbers[rank]], x, y, rank, ...values(rank), class: classes?.[rank] }))
    .filter((patch) => magnification === undefined || patch.magnification === magnification)
    .filter((patch) => page.patchClass === null || patch.class === page.patchClass)
    .sort((a, b) => b.attention - a.attention);
}

const patchColour = (patch) => (patch.class === undefined ? OUTLINE : PALETTE[Math.min(patch.class, 9)]);
const patchBounds = ({ x, y, extent }) => [[y, x], [y + extent, x + extent]];
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
  const ratio = formatRatio(patch.ratio);
  const numbers = element("span", "", share, element("span", "ratio", ratio));
  const several = imageNames().length > 1;
  const caption = element("span", "caption", numbers, element("span", "class", name));
  if (several) caption.append(element("span", "of", `image ${patch.image + 1}`));
  const button = element("button", "", picture, caption);
  button.dataset.rank = patch.rank;
  const position = `${several ? `${imageNames()[patch.image]}, ` : ""}x ${formatNumber(patch.x)}, y ${formatNumber(patch.y)}`;
  const shares = `${share} of the attention among the kept patches, ${ratio} an even share among all`;
  button.title = `${position}: ${shares}${name ? `, class ${name}` : ""}`;
  button.setAttribute("aria-label", `Go to the patch at ${button.title}`);
  button.addEventListener("click", () => goTo(patch));
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
  const here = patches.filter(({ image }) => image === page.image);
  if ($("outlines").checked) here.reverse().forEach((patch) => addRectangle(patch, 1.5, page.layers.outlines));
}

async function goTo(patch) {
  const { id } = page.details;
  if (patch.image !== page.image) await selectImage(patch.image);
  if (!page.map || !page.details?.answer || page.details.id !== id || page.image !== patch.image) return;
  $("gallery").querySelector("[aria-current]")?.removeAttribute("aria-current");
  $("gallery").querySelector(`[data-rank="${patch.rank}"]`)?.setAttribute("aria-current", "true");
  page.layers.selected.clearLayers();
  addRectangle(patch, 3.5, page.layers.selected);
  const bounds = L.latLngBounds(patchBounds(patch)).pad(1.5);
  if (reducedMotion.matches) page.map.fitBounds(bounds, { animate: false });
  else page.map.flyToBounds(bounds, { duration: 0.6 });
}
