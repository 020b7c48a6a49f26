// The page of `ips view`. What comes from a file's name or a label is only ever set as text.
"use strict";

(() => {
  const TILE = 256;
  const OVERZOOM = 4; // how much further than its own pixels an image can be enlarged
  const MOST_CLASSES = 12; // shown at first
  const MOST_SHOWN = 60; // patches in the gallery
  // The ten class colours of `ips explain`.
  const PALETTE = [
    "#0072b2", "#ffa90e", "#bd1f01", "#33bbee", "#7b68ee",
    "#ee7733", "#b2df8a", "#ffaabb", "#a96b59", "#717581",
  ];
  const OUTLINE = "#ffa90e";
  // What part of the map is drawn, from its highest values on: the stops of the slider.
  const TOP = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1];

  const $ = (id) => document.getElementById(id);
  const still = matchMedia("(prefers-reduced-motion: reduce)");

  const run = { tasks: [], classes: null, colours: [] };
  const images = new Map(); // id to what the list knows of an image
  let change = 0; // the last one that was heard of
  let polling = 0;
  let lost = false; // the server did not answer
  let current = null; // id
  let shown = null; // details of the current image
  let task = 0; // the number of tasks means all of them
  let readAs = null; // a class that patches have to be read as
  let all = false; // every class is listed

  let map = null;
  let layers = {};

  // Small helpers

  const element = (tag, name, text) => {
    const made = document.createElement(tag);
    if (name) made.className = name;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  const number = (value) => value.toLocaleString("en-US");
  const percent = (value) => (value >= 0.0995 ? Math.round(100 * value) : (100 * value).toFixed(1)) + " %";
  const several = () => run.tasks.length > 1;

  async function ask(address) {
    const response = await fetch(address, { cache: "no-store" });
    if (!response.ok) throw new Error(await response.text());
    return response.json();
  }

  function notice(text, small = false) {
    $("notice").hidden = !text;
    $("notice").classList.toggle("small", small);
    $("notice").textContent = text || "";
  }

  // The list of images

  function said(row) {
    if (row.state === "failed") return "failed";
    if (row.state === "waiting") return "…";
    if (row.state === "looking") return row.total ? percent(row.done / row.total) : "…";
    const of = (i) => row.answers[i].names.join(" ") || "none";
    if (task < run.tasks.length) {
      const p = row.answers[task].probability;
      return p === null ? of(task) : `${of(task)} (${p.toFixed(2)})`;
    }
    return run.tasks.map((_, i) => of(i)).join(" · ");
  }

  function update(row) {
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

  function filtered() {
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

  function step(by) {
    const visible = [...images.values()].filter(({ item }) => !item.hidden);
    if (!visible.length) return;
    const at = visible.findIndex(({ row }) => row.id === current);
    const next = at < 0 ? 0 : Math.min(Math.max(at + by, 0), visible.length - 1);
    if (visible[next].row.id !== current) open(visible[next].row.id);
  }

  async function poll() {
    clearTimeout(polling);
    let pause = 700;
    try {
      const news = await ask(`api/images?since=${change}`);
      change = news.change;
      if (lost) notice("");
      lost = false;
      const before = images.get(current)?.row.state;
      news.images.forEach(update);
      filtered();
      const after = images.get(current)?.row.state;
      if (shown && before !== after && (after === "ready" || after === "failed")) {
        await refresh(current);
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
    const row = images.get(current)?.row;
    const busy = row && shown && !shown.error && ["waiting", "looking"].includes(row.state);
    $("progress").hidden = !busy;
    if (!busy) return;
    const looked = row.total ? `${number(row.done)} of ${number(row.total)} patches looked at` : "";
    $("progress-text").textContent = row.state === "waiting" ? "Waits for its turn" : looked || "Opening";
    $("bar").value = row.total ? row.done / row.total : 0;
  }

  // An image

  async function open(id) {
    images.get(current)?.item.setAttribute("aria-selected", "false");
    current = id;
    const { item } = images.get(id);
    item.setAttribute("aria-selected", "true");
    item.scrollIntoView({ block: "nearest" });
    $("images").setAttribute("aria-activedescendant", item.id);
    history.replaceState(null, "", `#${id}`);
    shown = null;
    await refresh(id);
    if (current === id) poll();
  }

  async function refresh(id) {
    let details;
    try {
      details = await ask(`api/images/${id}`);
    } catch (error) {
      details = { id, name: images.get(id).row.name, error: error.message };
    }
    if (current !== id) return; // another was opened meanwhile
    const same = shown && shown.id === id && shown.changed === details.changed && map;
    shown = details;
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
    map?.remove();
    map = null;
    layers = {};
    $("scale").hidden = true;
    $("pointer").textContent = "";
    delete $("map").dataset.zoom;
    if (shown.error) return;
    const { width, height, zoom, bounds } = shown;
    // Latitude and longitude are y and x in full-resolution pixels, y downwards.
    const crs = L.extend({}, L.CRS.Simple, {
      transformation: new L.Transformation(1, 0, 1, 0),
      scale: (z) => 2 ** (z - zoom),
      zoom: (scale) => Math.log2(scale) + zoom,
    });
    const area = [[0, 0], [height, width]];
    const [left, top, wide, high] = bounds;
    map = L.map("map", {
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
    layers.image = L.tileLayer(`tiles/${shown.id}/{z}/{x}/{y}?of=${shown.changed}`, options).addTo(map);
    layers.image.on("tileerror", unreadable);
    layers.options = options;
    layers.outlines = L.layerGroup().addTo(map);
    layers.marked = L.layerGroup().addTo(map);
    layers.annotations = L.layerGroup();
    if ($("annotations").checked) layers.annotations.addTo(map);
    map.on("moveend zoomend", moved);
    map.on("mousemove", ({ latlng }) => {
      const [x, y] = [Math.floor(latlng.lng), Math.floor(latlng.lat)];
      const inside = x >= 0 && y >= 0 && x < width && y < height;
      $("pointer").textContent = inside ? `x ${number(x)}, y ${number(y)}` : "";
    });
    map.on("mouseout", () => ($("pointer").textContent = ""));
    map.fitBounds([[top, left], [top + high, left + wide]], { animate: false, padding: [8, 8] });
  }

  function moved() {
    if (!shown) return; // another image is being opened
    const centre = map.getCenter();
    $("map").classList.toggle("sharp", map.getZoom() > shown.zoom);
    $("map").dataset.zoom = map.getZoom();
    $("map").dataset.x = Math.round(centre.lng);
    $("map").dataset.y = Math.round(centre.lat);
    scale();
  }

  async function unreadable({ tile }) {
    const id = current;
    const response = await fetch(tile.src).catch(() => null);
    if (current === id && response && response.status === 422) notice(await response.text(), true);
  }

  function scale() {
    $("scale").hidden = !shown.mpp;
    if (!shown.mpp) return;
    const micrometres = shown.mpp * 2 ** (shown.zoom - map.getZoom()); // of a pixel on the screen
    const most = 110 * micrometres;
    const ten = 10 ** Math.floor(Math.log10(most));
    const length = [5, 2, 1].map((n) => n * ten).find((n) => n <= most);
    $("scale-text").style.width = `${length / micrometres}px`;
    $("scale-text").textContent = length >= 1000 ? `${number(length / 1000)} mm` : `${+length.toPrecision(1)} µm`;
  }

  // What the model says

  function describe() {
    const found = !shown.error && shown.answer;
    $("image-name").textContent = shown.name;
    const size = shown.error ? "" : `${number(shown.width)} × ${number(shown.height)} px`;
    const kept = found ? `\n${number(found.count)} of ${number(found.patches)} patches kept` : "";
    $("facts").textContent = size + kept;
    $("annotations-label").hidden = !shown.annotated;
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

  function probabilities() {
    const list = $("probabilities");
    list.replaceChildren();
    $("more").hidden = true;
    if (!shown.answer) return;
    const { probabilities: rows, said: answers } = shown.answer;
    list.classList.toggle("summary", task === run.tasks.length);
    if (task === run.tasks.length) {
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
    const answered = new Set(answers[task].names);
    let entries = rows[task];
    if (entries.length > MOST_CLASSES && !all) {
      entries = [...entries].sort((a, b) => b[1] - a[1]).slice(0, MOST_CLASSES);
      $("more").textContent = `all ${number(rows[task].length)} classes`;
      $("more").hidden = false;
    }
    list.append(...entries.map(([name, p]) => bar(name, p, p.toFixed(2), answered.has(name))));
  }

  // A new layer goes over the one before, which is taken away once the new one is there. (Leaflet's
  // own way to change an address asks for tiles of a broken zoom between two whole ones.)
  function attend() {
    const before = layers.attentions || [];
    if (!map || !shown.answer || !$("attention").checked) {
      before.forEach((layer) => layer.remove());
      layers.attentions = [];
      return;
    }
    const query = `task=${task}&colours=${$("colours").value}&above=${(1 - TOP[$("top").value]).toFixed(3)}&of=${shown.changed}`;
    const layer = L.tileLayer(`attention/${shown.id}/{z}/{x}/{y}?${query}`, {
      ...layers.options,
      opacity: Number($("opacity").value),
    });
    layers.attentions = [...before, layer];
    layer.on("load", () => {
      if (layer !== layers.attentions?.at(-1)) return;
      layers.attentions.slice(0, -1).forEach((old) => old.remove());
      layers.attentions = [layer];
    });
    layer.addTo(map);
  }

  // The patches that were kept, in the order of their attention for the current task.

  function ranked() {
    const { kept, attention, classes } = shown.answer;
    return kept
      .map(([x, y], rank) => ({ x, y, rank, attention: attention[task][rank], read: classes?.[rank] }))
      .filter(({ read }) => readAs === null || read === readAs)
      .sort((a, b) => b.attention - a.attention);
  }

  const chip = (patch) => (patch.read === undefined ? OUTLINE : PALETTE[Math.min(patch.read, 9)]);
  const box = ({ x, y }) => [[y, x], [y + shown.answer.extent, x + shown.answer.extent]];
  const readName = (patch) => (patch.read === undefined ? "" : run.classes[patch.read]);

  function gallery() {
    $("gallery").replaceChildren();
    layers.outlines?.clearLayers();
    layers.marked?.clearLayers();
    $("classes").hidden = !(shown.answer?.classes && run.classes);
    $("gallery-section").hidden = !shown.answer;
    if (!map || !shown.answer) return;
    const patches = ranked();
    for (const patch of patches.slice(0, MOST_SHOWN)) {
      const button = element("button");
      button.type = "button";
      const picture = element("img");
      picture.src = `patches/${shown.id}/${patch.rank}?of=${shown.changed}`;
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
    $("gallery").classList.toggle("small", shown.answer.extent < 100);
    if (!$("outlines").checked) return;
    for (const patch of patches.reverse()) {
      L.rectangle(box(patch), { color: chip(patch), weight: 1.5, fill: false, interactive: false }).addTo(layers.outlines);
    }
  }

  function visit(patch, button) {
    if (!shown?.answer) return;
    for (const other of $("gallery").querySelectorAll("[aria-current]")) other.removeAttribute("aria-current");
    button.setAttribute("aria-current", "true");
    layers.marked.clearLayers();
    L.rectangle(box(patch), { color: chip(patch), weight: 3.5, fill: false, interactive: false }).addTo(layers.marked);
    const around = L.latLngBounds(box(patch)).pad(1.5);
    if (still.matches) map.fitBounds(around, { animate: false });
    else map.flyToBounds(around, { duration: 0.6 });
  }

  async function annotate(id) {
    let found;
    try {
      found = await ask(`api/images/${id}/annotations`);
    } catch (error) {
      if (current === id) notice(error.message, true);
      return;
    }
    if (current !== id || !map) return;
    for (const { kind, lines, name, colour } of found) {
      const places = lines.map((line) => line.map(([x, y]) => [y, x]));
      const style = { color: colour, weight: 2, fillOpacity: 0.06 };
      const layer =
        kind === "polygon" ? L.polygon(places, style)
        : kind === "line" ? L.polyline(places, { ...style, fill: false })
        : L.circleMarker(places[0][0], { ...style, radius: 5 });
      if (name) layer.bindTooltip(element("span", "", name), { sticky: true });
      layer.addTo(layers.annotations);
    }
  }

  // What can be set

  function choose(chosen) {
    task = chosen;
    all = false;
    for (const button of $("tasks").children) {
      const on = Number(button.value) === task;
      button.setAttribute("aria-checked", String(on));
      button.tabIndex = on ? 0 : -1;
    }
    for (const { row } of images.values()) update(row);
    filtered();
    if (shown) describe();
  }

  function redraw() {
    if (shown) attend();
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
      choose((task + by + names.length) % names.length);
      $("tasks").children[task].focus();
    });
    for (const name of run.colours) $("colours").append(new Option(name, name));
    $("classes").append(new Option("of any class", ""));
    (run.classes || []).forEach((name, i) => $("classes").append(new Option(`read as ${name}`, i)));

    let later = 0;
    $("opacity").addEventListener("input", () => {
      values();
      layers.attentions?.forEach((layer) => layer.setOpacity(Number($("opacity").value)));
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
    $("outlines").addEventListener("change", () => shown && gallery());
    $("annotations").addEventListener("change", () => {
      if (!map) return;
      if ($("annotations").checked) layers.annotations.addTo(map);
      else layers.annotations.remove();
    });
    $("classes").addEventListener("change", () => {
      readAs = $("classes").value === "" ? null : Number($("classes").value);
      if (shown) gallery();
    });
    $("more").addEventListener("click", () => {
      all = true;
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
        t: () => several() && choose((task + 1) % (run.tasks.length + 1)),
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
      task = several() ? run.tasks.length : 0;
      $("run").textContent = run.run;
      $("run").title = run.run;
      controls();
      values();
      const news = await ask("api/images");
      change = news.change;
      news.images.forEach(update);
      choose(task);
      const named = location.hash.slice(1);
      await open(images.has(named) ? named : images.keys().next().value);
      $("images").focus();
    } catch (error) {
      notice(`The page cannot be shown: ${error.message}`);
    }
  }

  start();
})();
