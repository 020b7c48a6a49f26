// Start of the page of `ips view`, and its controls.

import { TOP_SHARES, selectPart, showAnswer, showAttention, showPatches, showProbabilities, showScale } from "./answer.js";
import { fitImage, openImage, selectImage, toggleAnnotations } from "./image.js";
import { applyFilter, changeQueue, receiveChanges, step, updateRows } from "./library.js";
import { addOverview } from "./overview.js";
import {
  $, element, fetchJson, formatPercent, hasSeveralTasks, imageNames, images, page, run, showNotice, updateControls,
} from "./page.js";
import { showStrip } from "./strip.js";

function selectTask(task) {
  page.task = task;
  page.showAllClasses = false;
  for (const button of $("tasks").children) {
    const checked = Number(button.value) === task;
    button.setAttribute("aria-checked", String(checked));
    button.tabIndex = checked ? 0 : -1;
  }
  updateRows();
  if (page.details) showAnswer();
}

function stepTask(offset) {
  const count = run.tasks.length + 1;
  selectTask((page.task + offset + count) % count);
}

function showSettings() {
  $("opacity-value").textContent = formatPercent(Number($("opacity").value));
  $("top-value").textContent = formatPercent(TOP_SHARES[$("top").value]);
  $("top").setAttribute("aria-valuetext", $("top-value").textContent);
  $("legend").src = `colour-maps/${$("colour-maps").value}`;
}

const ARROWS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

function addTaskButtons() {
  [...run.tasks, "all"].forEach((name, task) => {
    const button = element("button", "", name);
    button.value = task;
    button.setAttribute("role", "radio");
    button.addEventListener("click", () => selectTask(task));
    $("tasks").append(button);
  });
  $("tasks").addEventListener("keydown", (event) => {
    const offset = ARROWS[event.key];
    if (!offset) return;
    event.preventDefault();
    stepTask(offset);
    $("tasks").children[page.task].focus();
  });
}

function toggleFullScreen() {
  if (document.fullscreenElement) document.exitFullscreen();
  else document.querySelector("main").requestFullscreen().catch((error) => showNotice(error.message, true));
}

function addTools() {
  $("zoom-in").addEventListener("click", () => page.map.zoomIn());
  $("zoom-out").addEventListener("click", () => page.map.zoomOut());
  $("fit").addEventListener("click", () => fitImage());
  $("full-resolution").addEventListener("click", () => page.map.setZoom(page.details.zoom));
  $("full-screen").addEventListener("click", toggleFullScreen);
  document.addEventListener("fullscreenchange", () => {
    $("full-screen").setAttribute("aria-pressed", String(Boolean(document.fullscreenElement)));
  });
  // The map does not notice that a panel or the window has changed its size.
  new ResizeObserver(() => page.map?.invalidateSize({ animate: false })).observe($("map"));
}

function addControls() {
  addTools();
  addOverview();
  if (hasSeveralTasks()) addTaskButtons();
  for (const name of run.colour_maps) $("colour-maps").append(new Option(name, name));
  $("classes").append(new Option("any class", ""));
  (run.classes || []).forEach((name, i) => $("classes").append(new Option(`class ${name}`, i)));

  let redrawTimer = 0;
  $("layer-section").addEventListener("input", showSettings);
  $("opacity").addEventListener("input", () => {
    page.layers.attention?.forEach((layer) => layer.setOpacity(Number($("opacity").value)));
    showStrip();
  });
  $("top").addEventListener("input", () => {
    clearTimeout(redrawTimer);
    redrawTimer = setTimeout(showAttention, 120);
  });
  for (const id of ["attention", "colour-maps", "map-scale", "smooth"]) {
    $(id).addEventListener("change", () => {
      showScale();
      showAttention();
      updateControls();
    });
  }
  $("outlines").addEventListener("change", showPatches);
  $("annotations").addEventListener("change", toggleAnnotations);
  $("classes").addEventListener("change", () => {
    page.patchClass = $("classes").value === "" ? null : Number($("classes").value);
    showPatches();
  });
  $("more").addEventListener("click", () => {
    page.showAllClasses = true;
    showProbabilities();
  });
  $("parts").addEventListener("keydown", (event) => {
    const offset = ARROWS[event.key];
    if (!offset) return;
    event.preventDefault();
    selectPart(page.part + offset);
    $("parts").children[page.part].focus();
  });
  $("strip").addEventListener("keydown", (event) => {
    const offset = ARROWS[event.key];
    if (!offset) return;
    event.preventDefault();
    selectImage(page.image + offset);
    $("strip").children[page.image].focus();
  });
  $("predict-all").addEventListener("click", () => changeQueue({ all: true, paused: false }));
  $("pause").addEventListener("click", () => changeQueue({ paused: !page.queue.paused }));
  $("wrong").addEventListener("change", applyFilter);
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
      t: () => hasSeveralTasks() && stepTask(1),
      a: () => $("attention").click(),
      s: () => $("smooth").click(),
      m: () => selectPart(page.part + 1),
      i: () => imageNames().length > 1 && selectImage(page.image + 1),
      o: () => $("outlines").click(),
      w: () => $("wrong").click(),
      p: () => $("pause").click(),
      0: () => $("fit").click(),
      1: () => $("full-resolution").click(),
      f: () => $("full-screen").click(),
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
