// The page of `ips view`: what can be set, and how it starts.

import { TOP, attend, describe, gallery, probabilities } from "./answer.js";
import { open } from "./image.js";
import { filtered, hear, step, update } from "./library.js";
import { $, ask, element, images, notice, page, percent, run, several } from "./page.js";

function choose(chosen) {
  page.task = chosen;
  page.all = false;
  for (const button of $("tasks").children) {
    const on = Number(button.value) === page.task;
    button.setAttribute("aria-checked", String(on));
    button.tabIndex = on ? 0 : -1;
  }
  for (const { row } of images.values()) update(row);
  filtered();
  if (page.shown) describe();
}

function redraw() {
  if (page.shown) attend();
}

function values() {
  $("opacity-value").textContent = percent(Number($("opacity").value));
  $("top-value").textContent = percent(TOP[$("top").value]);
  $("top").setAttribute("aria-valuetext", $("top-value").textContent);
  $("legend").src = `colours/${$("colours").value}`;
}

function toggle(id) {
  $(id).checked = !$(id).checked;
  $(id).dispatchEvent(new Event("change"));
}

function controls() {
  const names = several() ? [...run.tasks.map((name, i) => [name, i]), ["all", run.tasks.length]] : [];
  for (const [name, value] of names) {
    const button = element("button", "", name);
    button.type = "button";
    button.value = value;
    button.setAttribute("role", "radio");
    button.addEventListener("click", () => choose(value));
    $("tasks").append(button);
  }
  $("tasks").addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    choose((page.task + by + names.length) % names.length);
    $("tasks").children[page.task].focus();
  });
  for (const name of run.colours) $("colours").append(new Option(name, name));
  $("classes").append(new Option("of any class", ""));
  (run.classes || []).forEach((name, i) => $("classes").append(new Option(`read as ${name}`, i)));

  let later = 0;
  $("opacity").addEventListener("input", () => {
    values();
    page.layers.attentions?.forEach((layer) => layer.setOpacity(Number($("opacity").value)));
  });
  $("top").addEventListener("input", () => {
    values();
    clearTimeout(later);
    later = setTimeout(redraw, 120);
  });
  $("colours").addEventListener("change", () => {
    values();
    redraw();
  });
  $("attention").addEventListener("change", redraw);
  $("outlines").addEventListener("change", () => page.shown && gallery());
  $("annotations").addEventListener("change", () => {
    if (!page.map) return;
    if ($("annotations").checked) page.layers.annotations.addTo(page.map);
    else page.layers.annotations.remove();
  });
  $("classes").addEventListener("change", () => {
    page.readAs = $("classes").value === "" ? null : Number($("classes").value);
    if (page.shown) gallery();
  });
  $("more").addEventListener("click", () => {
    page.all = true;
    probabilities();
  });
  $("filter").addEventListener("input", filtered);
  $("filter").addEventListener("keydown", ({ key }) => {
    if (key === "Enter" || key === "ArrowDown") {
      $("images").focus();
      step(key === "Enter" ? 0 : 1);
    }
    if (key === "Escape") $("images").focus();
  });
  $("images").addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -images.size, End: images.size }[event.key];
    if (!by) return;
    event.preventDefault();
    step(by);
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input[type=search], select")) return;
    const does = {
      j: () => step(1),
      k: () => step(-1),
      t: () => several() && choose((page.task + 1) % (run.tasks.length + 1)),
      a: () => toggle("attention"),
      o: () => toggle("outlines"),
      "/": () => $("filter").focus(),
    }[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  });
}

async function start() {
  try {
    Object.assign(run, await ask("api/run"));
    page.task = several() ? run.tasks.length : 0;
    $("run").textContent = run.run;
    $("run").title = run.run;
    controls();
    values();
    hear(await ask("api/images"));
    choose(page.task);
    const named = location.hash.slice(1);
    await open(images.has(named) ? named : images.keys().next().value);
    $("images").focus();
  } catch (error) {
    notice(`The page cannot be shown: ${error.message}`);
  }
}

start();
