// The list of images, and which of them are predicted.

import { loadDetails, openImage } from "./image.js";
import {
  $, element, fetchJson, formatNumber, formatPercent, images, isPending, page, run, showNotice, updateControls,
} from "./page.js";
import { addThumbnail } from "./thumbnails.js";

let version = 0; // of the list, as last received
let pollTimer = 0;
let disconnected = false;

// The predictions that are shown: that of the current task, or of all.
function shown(row) {
  if (!row.predictions) return [];
  return page.task === run.tasks.length ? row.predictions : [row.predictions[page.task]];
}

const isWrong = (row) => shown(row).some(({ correct }) => correct === false);
const isRight = (row) => !isWrong(row) && shown(row).some(({ correct }) => correct);

function statusText(row) {
  if (row.state === "failed") return "failed";
  if (row.state === "running") return row.total ? formatPercent(row.done / row.total) : "…";
  if (row.state === "waiting") {
    const isNext = !page.queue.paused && (page.queue.all || row.id === page.currentId);
    return isNext ? "…" : "not predicted";
  }
  const names = shown(row).map((prediction) => prediction.names.join(" ") || "none");
  if (names.length > 1) return names.join(" · ");
  const { probability, note } = shown(row)[0];
  if (note) return `${names[0]} (${note})`;
  return probability === null ? names[0] : `${names[0]} (${probability.toFixed(2)})`;
}

export function updateRow(row) {
  let image = images.get(row.id);
  if (!image) {
    const text = element("span", "text", element("span", "name"), element("span", "status"));
    const picture = element("img", "thumbnail");
    const item = element("li", "", picture, text, element("span", "verdict"));
    item.id = `image-${row.id}`;
    item.setAttribute("role", "option");
    item.setAttribute("aria-selected", "false");
    item.addEventListener("click", () => openImage(row.id));
    $("images").append(item);
    addThumbnail(picture, `thumbnails/${row.id}/0`);
    image = { item };
    images.set(row.id, image);
  }
  const { item } = image;
  image.row = row;
  const [wrong, right] = [isWrong(row), isRight(row)];
  item.classList.toggle("failed", row.state === "failed");
  item.classList.toggle("wrong", wrong);
  item.querySelector(".name").textContent = row.name;
  const count = row.images.length;
  item.querySelector(".status").textContent = statusText(row) + (count > 1 ? ` · ${count} images` : "");
  item.querySelector(".verdict").textContent = wrong ? "✗" : right ? "✓" : "";
  item.querySelector(".verdict").title = wrong ? "wrong" : right ? "correct" : "";
  item.title = row.message || row.name;
}

export function updateRows() {
  for (const { row } of images.values()) updateRow(row);
  applyFilter();
}

export function applyFilter() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const wrongOnly = $("wrong").checked;
  const count = { visible: 0, ready: 0, wrong: 0 };
  for (const { row, item } of images.values()) {
    const text = `${row.name} ${statusText(row)}`.toLowerCase();
    item.hidden = !words.every((word) => text.includes(word)) || (wrongOnly && !isWrong(row));
    count.visible += !item.hidden;
    count.ready += row.state === "ready";
    count.wrong += isWrong(row);
  }
  const total = formatNumber(images.size);
  const isFiltered = words.length || wrongOnly;
  const unit = [...images.values()].some(({ row }) => row.images.length > 1) ? "patient" : "image";
  const number = isFiltered ? `${formatNumber(count.visible)} of ${total}` : total;
  const parts = [`${number} ${unit}${images.size === 1 ? "" : "s"}`];
  if (count.ready < images.size) parts.push(`${formatNumber(count.ready)} predicted`);
  if (run.labelled) parts.push(`${formatNumber(count.wrong)} wrong`);
  $("count").textContent = parts.join(", ");
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
  page.queue = changes.queue;
  changes.images.forEach(updateRow);
}

export async function changeQueue({ all = page.queue.all, paused = page.queue.paused }) {
  page.queue = await fetchJson(`api/queue?all=${all}&paused=${paused}`);
  updateRows();
  await poll();
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
    updateControls();
    if (!page.queue.busy) return; // nothing more will change
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
  const waiting = page.queue.paused ? "Paused" : "Waiting";
  $("progress-text").textContent = row.state === "waiting" ? waiting : scored;
  $("bar").value = row.total ? row.done / row.total : 0;
}
