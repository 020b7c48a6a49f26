// An image: its tiles, and what people drew on it.

import { describe } from "./answer.js";
import { poll } from "./library.js";
import { $, ask, element, images, notice, number, page, still } from "./page.js";

const TILE = 256;
const OVERZOOM = 4; // how much further than its own pixels an image can be enlarged

export async function open(id) {
  images.get(page.current)?.item.setAttribute("aria-selected", "false");
  page.current = id;
  const { item } = images.get(id);
  item.setAttribute("aria-selected", "true");
  item.scrollIntoView({ block: "nearest" });
  $("images").setAttribute("aria-activedescendant", item.id);
  history.replaceState(null, "", `#${id}`);
  page.shown = null;
  await refresh(id);
  if (page.current === id) poll();
}

export async function refresh(id) {
  let details;
  try {
    details = await ask(`api/images/${id}`);
  } catch (error) {
    details = { id, name: images.get(id).row.name, error: error.message };
  }
  if (page.current !== id) return; // another was opened meanwhile
  const same = page.shown && page.shown.id === id && page.shown.changed === details.changed && page.map;
  page.shown = details;
  document.title = `${details.name} – ips view`;
  if (!same) lay();
  if (details.error) notice(details.error);
  else {
    const { row } = images.get(id);
    notice(row.state === "failed" ? row.message : "", true);
    if (!same && details.annotated) annotate(id);
  }
  describe();
}

function lay() {
  page.map?.remove();
  page.map = null;
  page.layers = {};
  $("scale").hidden = true;
  $("pointer").textContent = "";
  delete $("map").dataset.zoom;
  if (page.shown.error) return;
  const { width, height, zoom, bounds } = page.shown;
  // Latitude and longitude are y and x in full-resolution pixels, y downwards.
  const crs = L.extend({}, L.CRS.Simple, {
    transformation: new L.Transformation(1, 0, 1, 0),
    scale: (z) => 2 ** (z - zoom),
    zoom: (scale) => Math.log2(scale) + zoom,
  });
  const area = [[0, 0], [height, width]];
  const [left, top, wide, high] = bounds;
  page.map = L.map("map", {
    crs,
    attributionControl: false,
    preferCanvas: true,
    zoomSnap: 0,
    wheelPxPerZoomLevel: 100,
    minZoom: Math.min(0, Math.floor(Math.log2(480 / Math.max(width, height)) + zoom)),
    maxZoom: zoom + OVERZOOM,
    maxBounds: L.latLngBounds(area).pad(0.5),
    zoomAnimation: !still.matches,
    fadeAnimation: !still.matches,
  });
  const options = {
    tileSize: TILE,
    minNativeZoom: 0,
    maxNativeZoom: zoom,
    minZoom: -8,
    maxZoom: zoom + OVERZOOM,
    bounds: area,
    noWrap: true,
    keepBuffer: 1,
  };
  page.layers.image = L.tileLayer(`tiles/${page.shown.id}/{z}/{x}/{y}?of=${page.shown.changed}`, options).addTo(page.map);
  page.layers.image.on("tileerror", unreadable);
  page.layers.options = options;
  page.layers.outlines = L.layerGroup().addTo(page.map);
  page.layers.marked = L.layerGroup().addTo(page.map);
  page.layers.annotations = L.layerGroup();
  if ($("annotations").checked) page.layers.annotations.addTo(page.map);
  page.map.on("moveend zoomend", moved);
  page.map.on("mousemove", ({ latlng }) => {
    const [x, y] = [Math.floor(latlng.lng), Math.floor(latlng.lat)];
    const inside = x >= 0 && y >= 0 && x < width && y < height;
    $("pointer").textContent = inside ? `x ${number(x)}, y ${number(y)}` : "";
  });
  page.map.on("mouseout", () => ($("pointer").textContent = ""));
  page.map.fitBounds([[top, left], [top + high, left + wide]], { animate: false, padding: [8, 8] });
}

function moved() {
  if (!page.shown) return; // another image is being opened
  const centre = page.map.getCenter();
  $("map").classList.toggle("sharp", page.map.getZoom() > page.shown.zoom);
  $("map").dataset.zoom = page.map.getZoom();
  $("map").dataset.x = Math.round(centre.lng);
  $("map").dataset.y = Math.round(centre.lat);
  scale();
}

async function unreadable({ tile }) {
  const id = page.current;
  const response = await fetch(tile.src).catch(() => null);
  if (page.current === id && response && response.status === 422) notice(await response.text(), true);
}

function scale() {
  $("scale").hidden = !page.shown.mpp;
  if (!page.shown.mpp) return;
  const micrometres = page.shown.mpp * 2 ** (page.shown.zoom - page.map.getZoom()); // of a pixel on the screen
  const most = 110 * micrometres;
  const ten = 10 ** Math.floor(Math.log10(most));
  const length = [5, 2, 1].map((n) => n * ten).find((n) => n <= most);
  $("scale-text").style.width = `${length / micrometres}px`;
  $("scale-text").textContent = length >= 1000 ? `${number(length / 1000)} mm` : `${+length.toPrecision(1)} µm`;
}

async function annotate(id) {
  let found;
  try {
    found = await ask(`api/images/${id}/annotations`);
  } catch (error) {
    if (page.current === id) notice(error.message, true);
    return;
  }
  if (page.current !== id || !page.map) return;
  for (const { kind, lines, name, colour } of found) {
    const places = lines.map((line) => line.map(([x, y]) => [y, x]));
    const style = { color: colour, weight: 2, fillOpacity: 0.06 };
    const layer =
      kind === "polygon" ? L.polygon(places, style)
      : kind === "line" ? L.polyline(places, { ...style, fill: false })
      : L.circleMarker(places[0][0], { ...style, radius: 5 });
    if (name) layer.bindTooltip(element("span", "", name), { sticky: true });
    layer.addTo(page.layers.annotations);
  }
}
