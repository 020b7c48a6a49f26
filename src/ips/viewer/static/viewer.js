// Start of the page of `ips view`, and its controls.

import { TOP_SHARES, showAnswer, showAttention, showPatches, showProbabilities } from "./answer.js";
import { openImage } from "./image.js";
import { applyFilter, receiveChanges, step, updateRow } from "./library.js";
import { $, element, fetchJson, formatPercent, hasSeveralTasks, images, page, run, showNotice } from "./page.js";

function selectTask(task) {
  page.task = task;
  page.showAllClasses = false;
  for (const button of $("tasks").children) {
    const checked = Number(button.value) === task;
    button.setAttribute("aria-checked", String(checked));
    button.tabIndex = checked ? 0 : -1;
  }
  for (const { row } of images.values()) updateRow(row);
  applyFilter();
  if (page.details) showAnswer();
}

function redrawAttention() {
  if (page.details) showAttention();
}

function showSettings() {
  $("opacity-value").textContent = formatPercent(Number($("opacity").value));
  $("top-value").textContent = formatPercent(TOP_SHARES[$("top").value]);
  $("top").setAttribute("aria-valuetext", $("top-value").textContent);
  $("legend").src = `colour-maps/${$("colour-maps").value}`;
}

function toggle(id) {
  $(id).checked = !$(id).checked;
  $(id).dispatchEvent(new Event("change"));
}

function addTaskButtons() {
  const names = [...run.tasks, "all"];
  names.forEach((name, task) => {
    const button = element("button", "", name);
    button.type = "button";
    button.value = task;
    button.setAttribute("role", "radio");
    button.addEventListener("click", () => selectTask(task));
    $("tasks").append(button);
  });
  $("tasks").addEventListener("keydown", (event) => {
    const offset = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!offset) return;
    event.preventDefault();
    selectTask((page.task + offset + names.length) % names.length);
    $("tasks").children[page.task].focus();
  });
}

function addControls() {
  if (hasSeveralTasks()) addTaskButtons();
  for (const name of run.colour_maps) $("colour-maps").append(new Option(name, name));
  $("classes").append(new Option("any class", ""));
  (run.classes || []).forEach((name, i) => $("classes").append(new Option(`class ${name}`, i)));

  let redrawTimer = 0;
  $("opacity").addEventListener("input", () => {
    showSettings();
    page.layers.attention?.forEach((layer) => layer.setOpacity(Number($("opacity").value)));
  });
  $("top").addEventListener("input", () => {
    showSettings();
    clearTimeout(redrawTimer);
    redrawTimer = setTimeout(redrawAttention, 120);
  });
  $("colour-maps").addEventListener("change", () => {
    showSettings();
    redrawAttention();
  });
  $("attention").addEventListener("change", redrawAttention);
  $("outlines").addEventListener("change", () => page.details && showPatches());
  $("annotations").addEventListener("change", () => {
    if (!page.map) return;
    if ($("annotations").checked) page.layers.annotations.addTo(page.map);
    else page.layers.annotations.remove();
  });
  $("classes").addEventListener("change", () => {
    page.patchClass = $("classes").value === "" ? null : Number($("classes").value);
    if (page.details) showPatches();
  });
  $("more").addEventListener("click", () => {
    page.showAllClasses = true;
    showProbabilities();
  });
  $("filter").addEventListener("input", applyFilter);
  $("filter").addEventListener("keydown", ({ key }) => {
    if (key === "Enter" || key === "ArrowDown") {
      $("images").focus();
      step(key === "Enter" ? 0 : 1);
    }
    if (key === "Escape") $("images").focus();
  });
  $("images").addEventListener("keydown", (event) => {
    const offsets = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -images.size, End: images.size };
    if (!offsets[event.key]) return;
    event.preventDefault();
    step(offsets[event.key]);
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input[type=search], select")) return;
    const action = {
      j: () => step(1),
      k: () => step(-1),
      t: () => hasSeveralTasks() && selectTask((page.task + 1) % (run.tasks.length + 1)),
      a: () => toggle("attention"),
      o: () => toggle("outlines"),
      "/": () => $("filter").focus(),
    }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

async function start() {
  try {
    Object.assign(run, await fetchJson("api/run"));
    page.task = hasSeveralTasks() ? run.tasks.length : 0;
    $("run").textContent = run.run;
    $("run").title = run.run;
    addControls();
    showSettings();
    receiveChanges(await fetchJson("api/images"));
    selectTask(page.task);
    const linkedId = location.hash.slice(1);
    await openImage(images.has(linkedId) ? linkedId : images.keys().next().value);
    $("images").focus();
  } catch (error) {
    showNotice(`The page cannot be shown: ${error.message}`);
  }
}

start();
