// What the model says of an image, and where it looked.

import { $, element, number, page, percent, run, several, still } from "./page.js";

const MOST_CLASSES = 12; // shown at first
const MOST_SHOWN = 60; // patches in the gallery
// The ten class colours of `ips explain`.
const PALETTE = [
  "#0072b2", "#ffa90e", "#bd1f01", "#33bbee", "#7b68ee",
  "#ee7733", "#b2df8a", "#ffaabb", "#a96b59", "#717581",
];
const OUTLINE = "#ffa90e";
// What part of the map is drawn, from its highest values on: the stops of the slider.
export const TOP = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1];

export function describe() {
  const found = !page.shown.error && page.shown.answer;
  $("image-name").textContent = page.shown.name;
  const size = page.shown.error ? "" : `${number(page.shown.width)} × ${number(page.shown.height)} px`;
  const kept = found ? `\n${number(found.count)} of ${number(found.patches)} patches kept` : "";
  $("facts").textContent = size + kept;
  $("annotations-label").hidden = !page.shown.annotated;
  $("task-section").hidden = !several();
  probabilities();
  attend();
  gallery();
}

function bar(name, value, text, answered) {
  const item = element("li", answered ? "answered" : "");
  const track = element("span", "track");
  const fill = element("div", "fill");
  fill.style.width = `${100 * value}%`;
  track.append(fill);
  const label = element("span", "name", name);
  label.title = name;
  item.append(label, track, element("span", "value", text));
  return item;
}

export function probabilities() {
  const list = $("probabilities");
  list.replaceChildren();
  $("more").hidden = true;
  if (!page.shown.answer) return;
  const { probabilities: rows, said: answers } = page.shown.answer;
  list.classList.toggle("summary", page.task === run.tasks.length);
  if (page.task === run.tasks.length) {
    run.tasks.forEach((name, i) => {
      const item = element("li");
      const value = answers[i].probability;
      item.append(
        element("span", "name", name),
        element("span", "answered", answers[i].names.join(" ") || "none"),
        element("span", "value", value === null ? "" : value.toFixed(2)),
      );
      list.append(item);
    });
    return;
  }
  const answered = new Set(answers[page.task].names);
  let entries = rows[page.task];
  if (entries.length > MOST_CLASSES && !page.all) {
    entries = [...entries].sort((a, b) => b[1] - a[1]).slice(0, MOST_CLASSES);
    $("more").textContent = `all ${number(rows[page.task].length)} classes`;
    $("more").hidden = false;
  }
  list.append(...entries.map(([name, p]) => bar(name, p, p.toFixed(2), answered.has(name))));
}

// A new layer goes over the one before, which is taken away once the new one is there. (Leaflet's
// own way to change an address asks for tiles of a broken zoom between two whole ones.)
export function attend() {
  const before = page.layers.attentions || [];
  delete $("map").dataset.attention; // what is drawn, once it is
  if (!page.map || !page.shown.answer || !$("attention").checked) {
    before.forEach((layer) => layer.remove());
    page.layers.attentions = [];
    return;
  }
  const above = (1 - TOP[$("top").value]).toFixed(3);
  const query = `task=${page.task}&colours=${$("colours").value}&above=${above}&of=${page.shown.changed}`;
  const layer = L.tileLayer(`attention/${page.shown.id}/{z}/{x}/{y}?${query}`, {
    ...page.layers.options,
    opacity: Number($("opacity").value),
  });
  page.layers.attentions = [...before, layer];
  layer.on("load", () => {
    if (layer !== page.layers.attentions?.at(-1)) return;
    page.layers.attentions.slice(0, -1).forEach((old) => old.remove());
    page.layers.attentions = [layer];
    $("map").dataset.attention = query;
  });
  layer.addTo(page.map);
}

// The patches that were kept, in the order of their attention for the current task.

function ranked() {
  const { kept, attention, classes } = page.shown.answer;
  return kept
    .map(([x, y], rank) => ({ x, y, rank, attention: attention[page.task][rank], read: classes?.[rank] }))
    .filter(({ read }) => page.readAs === null || read === page.readAs)
    .sort((a, b) => b.attention - a.attention);
}

const chip = (patch) => (patch.read === undefined ? OUTLINE : PALETTE[Math.min(patch.read, 9)]);
const box = ({ x, y }) => [[y, x], [y + page.shown.answer.extent, x + page.shown.answer.extent]];
const readName = (patch) => (patch.read === undefined ? "" : run.classes[patch.read]);

export function gallery() {
  $("gallery").replaceChildren();
  page.layers.outlines?.clearLayers();
  page.layers.marked?.clearLayers();
  $("classes").hidden = !(page.shown.answer?.classes && run.classes);
  $("gallery-section").hidden = !page.shown.answer;
  if (!page.map || !page.shown.answer) return;
  const patches = ranked();
  for (const patch of patches.slice(0, MOST_SHOWN)) {
    const button = element("button");
    button.type = "button";
    const picture = element("img");
    picture.src = `patches/${page.shown.id}/${patch.rank}?of=${page.shown.changed}`;
    picture.loading = "lazy";
    picture.alt = "";
    if (patch.read !== undefined) picture.style.setProperty("--chip", chip(patch));
    const name = readName(patch);
    const share = percent(patch.attention);
    const caption = element("span", "caption");
    caption.append(element("span", "", share), element("span", "read", name));
    button.append(picture, caption);
    button.title = `x ${number(patch.x)}, y ${number(patch.y)}: ${share} of the attention to the patches kept${name ? `, read as ${name}` : ""}`;
    button.setAttribute("aria-label", `Go to the patch at ${button.title}`);
    button.addEventListener("click", () => visit(patch, button));
    const item = element("li");
    item.append(button);
    $("gallery").append(item);
  }
  $("gallery").classList.toggle("small", page.shown.answer.extent < 100);
  if (!$("outlines").checked) return;
  for (const patch of patches.reverse()) {
    L.rectangle(box(patch), { color: chip(patch), weight: 1.5, fill: false, interactive: false }).addTo(page.layers.outlines);
  }
}

function visit(patch, button) {
  if (!page.shown?.answer) return;
  for (const other of $("gallery").querySelectorAll("[aria-current]")) other.removeAttribute("aria-current");
  button.setAttribute("aria-current", "true");
  page.layers.marked.clearLayers();
  L.rectangle(box(patch), { color: chip(patch), weight: 3.5, fill: false, interactive: false }).addTo(page.layers.marked);
  const around = L.latLngBounds(box(patch)).pad(1.5);
  if (still.matches) page.map.fitBounds(around, { animate: false });
  else page.map.flyToBounds(around, { duration: 0.6 });
}
