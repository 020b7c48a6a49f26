// The list of images.

import { loadDetails, openImage } from "./image.js";
import { $, element, fetchJson, formatNumber, formatPercent, images, isPending, page, run, showNotice } from "./page.js";

let version = 0; // of the list, as last received
let pollTimer = 0;
let disconnected = false;

function statusText(row) {
  if (row.state === "failed") return "failed";
  if (isPending(row)) return row.state === "running" && row.total ? formatPercent(row.done / row.total) : "…";
  const names = row.predictions.map((prediction) => prediction.names.join(" ") || "none");
  if (page.task === run.tasks.length) return names.join(" · ");
  const { probability } = row.predictions[page.task];
  return probability === null ? names[page.task] : `${names[page.task]} (${probability.toFixed(2)})`;
}

export function updateRow(row) {
  let image = images.get(row.id);
  if (!image) {
    const item = element("li", "", element("span", "name"), element("span", "status"));
    item.id = `image-${row.id}`;
    item.setAttribute("role", "option");
    item.setAttribute("aria-selected", "false");
    item.addEventListener("click", () => openImage(row.id));
    $("images").append(item);
    image = { item };
    images.set(row.id, image);
  }
  image.row = row;
  image.item.classList.toggle("failed", row.state === "failed");
  image.item.children[0].textContent = row.name;
  image.item.children[1].textContent = statusText(row);
  image.item.title = row.message || row.name;
}

export function applyFilter() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  let visible = 0;
  for (const { row, item } of images.values()) {
    const text = `${row.name} ${statusText(row)}`.toLowerCase();
    item.hidden = !words.every((word) => text.includes(word));
    visible += !item.hidden;
  }
  const ready = [...images.values()].filter(({ row }) => row.state === "ready").length;
  const total = formatNumber(images.size);
  const count = words.length ? `${formatNumber(visible)} of ${total}` : total;
  const progress = ready < images.size ? `, ${formatNumber(ready)} predicted` : "";
  $("count").textContent = `${count} ${images.size === 1 ? "image" : "images"}${progress}`;
}

export function step(offset) {
  const visible = [...images.values()].filter(({ item }) => !item.hidden);
  if (!visible.length) return;
  const current = visible.findIndex(({ row }) => row.id === page.currentId);
  const next = current < 0 ? 0 : Math.min(Math.max(current + offset, 0), visible.length - 1);
  if (next !== current) openImage(visible[next].row.id);
}

export function receiveChanges(changes) {
  version = changes.version;
  changes.images.forEach(updateRow);
}

export async function poll() {
  clearTimeout(pollTimer);
  let pause = 700;
  try {
    const changes = await fetchJson(`api/images?since=${version}`);
    if (disconnected) showNotice("");
    disconnected = false;
    const before = images.get(page.currentId)?.row.state;
    receiveChanges(changes);
    applyFilter();
    const after = images.get(page.currentId)?.row.state;
    if (page.details && before !== after && (after === "ready" || after === "failed")) {
      await loadDetails(page.currentId);
    }
    showProgress();
    if (![...images.values()].some(({ row }) => isPending(row))) return; // nothing more will change
  } catch {
    disconnected = true;
    showNotice("The viewer does not respond: start ips view again.", true);
    pause = 3000;
  }
  pollTimer = setTimeout(poll, pause);
}

function showProgress() {
  const row = images.get(page.currentId)?.row;
  const visible = row && page.details && !page.details.error && isPending(row);
  $("progress").hidden = !visible;
  if (!visible) return;
  const scored = row.total ? `${formatNumber(row.done)} of ${formatNumber(row.total)} patches scored` : "Opening";
  $("progress-text").textContent = row.state === "waiting" ? "Waiting" : scored;
  $("bar").value = row.total ? row.done / row.total : 0;
}
