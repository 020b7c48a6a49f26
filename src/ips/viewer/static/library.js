// The list of images.

import { open, refresh } from "./image.js";
import { $, ask, element, images, notice, number, page, percent, run } from "./page.js";

let change = 0; // the last one that was heard of
let polling = 0;
let lost = false; // the server did not answer

function said(row) {
  if (row.state === "failed") return "failed";
  if (row.state === "waiting") return "…";
  if (row.state === "looking") return row.total ? percent(row.done / row.total) : "…";
  const of = (i) => row.answers[i].names.join(" ") || "none";
  if (page.task < run.tasks.length) {
    const p = row.answers[page.task].probability;
    return p === null ? of(page.task) : `${of(page.task)} (${p.toFixed(2)})`;
  }
  return run.tasks.map((_, i) => of(i)).join(" · ");
}

export function update(row) {
  let known = images.get(row.id);
  if (!known) {
    const item = element("li");
    item.id = `image-${row.id}`;
    item.setAttribute("role", "option");
    item.setAttribute("aria-selected", "false");
    item.append(element("span", "name"), element("span", "said"));
    item.addEventListener("click", () => open(row.id));
    $("images").append(item);
    known = { item };
    images.set(row.id, known);
  }
  Object.assign(known, { row });
  known.item.classList.toggle("failed", row.state === "failed");
  known.item.children[0].textContent = row.name;
  known.item.children[1].textContent = said(row);
  known.item.title = row.message || row.name;
}

export function filtered() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  let left = 0;
  for (const { row, item } of images.values()) {
    const text = `${row.name} ${said(row)}`.toLowerCase();
    item.hidden = !words.every((word) => text.includes(word));
    left += !item.hidden;
  }
  const ready = [...images.values()].filter(({ row }) => row.state === "ready").length;
  const counted = words.length ? `${number(left)} of ${number(images.size)}` : number(images.size);
  const waits = ready < images.size ? `, ${number(ready)} looked at` : "";
  $("count").textContent = `${counted} ${images.size === 1 ? "image" : "images"}${waits}`;
}

export function step(by) {
  const visible = [...images.values()].filter(({ item }) => !item.hidden);
  if (!visible.length) return;
  const at = visible.findIndex(({ row }) => row.id === page.current);
  const next = at < 0 ? 0 : Math.min(Math.max(at + by, 0), visible.length - 1);
  if (visible[next].row.id !== page.current) open(visible[next].row.id);
}

export function hear(news) {
  change = news.change;
  news.images.forEach(update);
}

export async function poll() {
  clearTimeout(polling);
  let pause = 700;
  try {
    const news = await ask(`api/images?since=${change}`);
    if (lost) notice("");
    lost = false;
    const before = images.get(page.current)?.row.state;
    hear(news);
    filtered();
    const after = images.get(page.current)?.row.state;
    if (page.shown && before !== after && (after === "ready" || after === "failed")) {
      await refresh(page.current);
    }
    progress();
    const busy = [...images.values()].some(({ row }) => ["waiting", "looking"].includes(row.state));
    if (!busy) return; // nothing will change by itself
  } catch {
    lost = true;
    notice("The viewer does not answer any more: start ips view again.", true);
    pause = 3000;
  }
  polling = setTimeout(poll, pause);
}

function progress() {
  const row = images.get(page.current)?.row;
  const busy = row && page.shown && !page.shown.error && ["waiting", "looking"].includes(row.state);
  $("progress").hidden = !busy;
  if (!busy) return;
  const looked = row.total ? `${number(row.done)} of ${number(row.total)} patches looked at` : "";
  $("progress-text").textContent = row.state === "waiting" ? "Waits for its turn" : looked || "Opening";
  $("bar").value = row.total ? row.done / row.total : 0;
}
