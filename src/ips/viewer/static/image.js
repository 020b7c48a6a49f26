// The current image, which may be one of several of a patient: its tiles and annotations.

import { showAnswer } from "./answer.js";
import { poll } from "./library.js";
import { showOverview, updateFrame } from "./overview.js";
import {
  $, element, fetchJson, formatNumber, formatPercent, imageNames, images, page, reducedMotion, showNotice, updateControls,
} from "./page.js";
import { showStrip } from "./strip.js";

const TILE = 256;
const EXTRA_ZOOM = 4; // how far an image can be enlarged beyond its own pixels

export async function openImage(id) {
  images.get(page.currentId)?.item.setAttribute("aria-selected", "false");
  page.currentId = id;
  const { item } = images.get(id);
  item.setAttribute("aria-selected", "true");
  item.scrollIntoView({ block: "nearest" });
  $("images").setAttribute("aria-activedescendant", item.id);
  history.replaceState(null, "", `#${id}`);
  page.image = 0;
  page.details = null;
  showStrip(); // before the map, which fits the image into the space that is left
  await loadDetails(id);
  if (page.currentId === id) poll();
}

// Show another image of the patient.
export async function selectImage(number) {
  const count = imageNames().length;
  page.image = (number + count) % count;
  showStrip();
  await loadDetails(page.currentId);
}

export async function loadDetails(id) {
  const { image } = page;
  const { name } = images.get(id).row;
  const failed = (error) => ({ error: error.message });
  const [answer, picture] = await Promise.all(
    [`api/images/${id}`, `api/images/${id}/${image}`].map((address) => fetchJson(address).catch(failed)),
  );
  if (page.currentId !== id || page.image !== image) return; // another image was opened in the meantime
  const previous = page.details;
  const details = { id, image, name, ...picture, error: picture.error ?? answer.error, answer: answer.patches ? answer : null };
  const isSame = page.map && previous?.id === id && previous.image === image && previous.modified === details.modified;
  page.details = details;
  document.title = `${name} – ips view`;
  if (!isSame) createMap();
  if (details.error) showNotice(details.error);
  else {
    const { row } = images.get(id);
    showNotice(row.state === "failed" ? row.message : "", true);
    const reportError = (error) => page.currentId === id && showNotice(error.message, true);
    if (!isSame && details.annotated) showAnnotations(id, image).catch(reportError);
  }
  showAnswer();
  updateControls();
}

function createMap() {
  page.map?.remove();
  page.map = null;
  page.layers = {};
  $("scale").hidden = $("overview").hidden = true;
  $("pointer").textContent = $("magnification").textContent = "";
  delete $("map").dataset.zoom;
  if (page.details.error) return;
  const { id, image, modified, width, height, zoom } = page.details;
  // Latitude and longitude are y and x in full-resolution pixels; y points down.
  const crs = L.extend({}, L.CRS.Simple, {
    transformation: new L.Transformation(1, 0, 1, 0),
    scale: (z) => 2 ** (z - zoom),
    zoom: (scale) => Math.log2(scale) + zoom,
  });
  const imageArea = [[0, 0], [height, width]];
  page.map = L.map("map", {
    crs,
    attributionControl: false,
    zoomControl: false,
    preferCanvas: true,
    zoomSnap: 0,
    wheelPxPerZoomLevel: 100,
    minZoom: Math.min(0, Math.floor(Math.log2(480 / Math.max(width, height)) + zoom)),
    maxZoom: zoom + EXTRA_ZOOM,
    maxBounds: L.latLngBounds(imageArea).pad(0.5),
    zoomAnimation: !reducedMotion.matches,
    fadeAnimation: !reducedMotion.matches,
  });
  const options = {
    tileSize: TILE,
    minNativeZoom: 0,
    maxNativeZoom: zoom,
    minZoom: -8,
    maxZoom: zoom + EXTRA_ZOOM,
    bounds: imageArea,
    noWrap: true,
    keepBuffer: 1,
  };
  const tiles = L.tileLayer(`tiles/${id}/${image}/{z}/{x}/{y}?modified=${modified}`, options).addTo(page.map);
  tiles.on("tileerror", showTileError);
  const [outlines, selected] = [L.layerGroup().addTo(page.map), L.layerGroup().addTo(page.map)];
  page.layers = { options, outlines, selected, annotations: L.layerGroup() };
  toggleAnnotations();
  page.map.on("moveend zoomend", onMove);
  page.map.on("mousemove", ({ latlng }) => {
    const [x, y] = [Math.floor(latlng.lng), Math.floor(latlng.lat)];
    const inside = x >= 0 && y >= 0 && x < width && y < height;
    $("pointer").textContent = inside ? `x ${formatNumber(x)}, y ${formatNumber(y)}` : "";
  });
  page.map.on("mouseout", () => ($("pointer").textContent = ""));
  showOverview();
  fitImage(false);
}

// Show all of the scanned area.
export function fitImage(animate = !reducedMotion.matches) {
  if (!page.map) return;
  const [left, top, width, height] = page.details.bounds;
  page.map.fitBounds([[top, left], [top + height, left + width]], { animate, padding: [8, 8] });
}

function onMove() {
  if (!page.details) return; // another image is being opened
  const centre = page.map.getCenter();
  $("map").classList.toggle("pixelated", page.map.getZoom() > page.details.zoom);
  const position = { zoom: page.map.getZoom(), x: Math.round(centre.lng), y: Math.round(centre.lat) };
  Object.assign($("map").dataset, position);
  updateFrame();
  updateScaleBar();
}

export function toggleAnnotations() {
  if (!page.map) return;
  if ($("annotations").checked) page.layers.annotations.addTo(page.map);
  else page.layers.annotations.remove();
}

async function showTileError({ tile }) {
  const id = page.currentId;
  const response = await fetch(tile.src).catch(() => null);
  if (page.currentId === id && response?.status === 422) showNotice(await response.text(), true);
}

function updateScaleBar() {
  const { mpp, zoom } = page.details;
  const enlargement = 2 ** (page.map.getZoom() - zoom); // pixels of the screen per pixel of the image
  $("magnification").textContent = formatPercent(enlargement);
  $("scale").hidden = !mpp;
  if (!mpp) return;
  const micrometresPerPixel = mpp / enlargement; // on the screen
  // By convention an objective of 40× has 0.25 µm per pixel.
  $("magnification").textContent = `${+(10 / micrometresPerPixel).toPrecision(2)}×, ${formatPercent(enlargement)}`;
  const maxLength = 110 * micrometresPerPixel;
  const powerOfTen = 10 ** Math.floor(Math.log10(maxLength));
  const length = [5, 2, 1].map((n) => n * powerOfTen).find((n) => n <= maxLength);
  $("scale-text").style.width = `${length / micrometresPerPixel}px`;
  $("scale-text").textContent = length >= 1000 ? `${formatNumber(length / 1000)} mm` : `${+length.toPrecision(1)} µm`;
}

async function showAnnotations(id, image) {
  const shapes = await fetchJson(`api/images/${id}/${image}/annotations`);
  if (page.currentId !== id || page.image !== image || !page.map) return;
  for (const { kind, lines, name, colour } of shapes) {
    const points = lines.map((line) => line.map(([x, y]) => [y, x]));
    const style = { color: colour, weight: 2, fillOpacity: 0.06 };
    const layer =
      kind === "polygon" ? L.polygon(points, style)
      : kind === "line" ? L.polyline(points, { ...style, fill: false })
      : L.circleMarker(points[0][0], { ...style, radius: 5 });
    if (name) layer.bindTooltip(element("span", "", name), { sticky: true });
    layer.addTo(page.layers.annotations);
  }
}
