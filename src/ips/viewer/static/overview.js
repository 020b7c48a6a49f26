// The overview: a small picture of the whole image, with a frame around what is visible.

import { $, page } from "./page.js";

const LARGEST = 168; // of its sides, in pixels of the screen

export function showOverview() {
  const { id, image, modified, bounds } = page.details;
  const [, , width, height] = bounds;
  const scale = Math.min(LARGEST / width, LARGEST / height);
  $("overview").style.width = `${Math.max(24, scale * width)}px`;
  $("overview").style.height = `${Math.max(24, scale * height)}px`;
  $("overview-image").classList.remove("loaded");
  $("overview-image").src = `thumbnails/${id}/${image}?modified=${modified}`;
}

// Hidden if all of the image is visible.
export function updateFrame() {
  const [left, top, width, height] = page.details.bounds;
  const view = page.map.getBounds();
  const clamp = (value) => Math.min(Math.max(value, 0), 1);
  const x0 = clamp((view.getWest() - left) / width);
  const x1 = clamp((view.getEast() - left) / width);
  // Leaflet's south is the smaller latitude, which is the upper edge here.
  const y0 = clamp((view.getSouth() - top) / height);
  const y1 = clamp((view.getNorth() - top) / height);
  $("overview").hidden = x1 - x0 > 0.999 && y1 - y0 > 0.999;
  Object.assign($("frame").style, {
    left: `${100 * x0}%`, top: `${100 * y0}%`, width: `${100 * (x1 - x0)}%`, height: `${100 * (y1 - y0)}%`,
  });
}

function moveTo(event) {
  if (!page.map) return;
  const [left, top, width, height] = page.details.bounds;
  const box = $("overview").getBoundingClientRect();
  const x = left + (width * (event.clientX - box.left)) / box.width;
  const y = top + (height * (event.clientY - box.top)) / box.height;
  page.map.panTo([y, x], { animate: false });
}

export function addOverview() {
  $("overview-image").addEventListener("load", () => $("overview-image").classList.add("loaded"));
  $("overview").addEventListener("pointerdown", (event) => {
    event.preventDefault();
    $("overview").setPointerCapture(event.pointerId);
    moveTo(event);
  });
  $("overview").addEventListener("pointermove", (event) => {
    if ($("overview").hasPointerCapture(event.pointerId)) moveTo(event);
  });
}
