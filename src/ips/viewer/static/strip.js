// The images of a patient side by side, with their attention on one scale: ranks are taken among all.

import { imageParts, mapQuery } from "./answer.js";
import { selectImage } from "./image.js";
import { $, element, formatPercent, imageNames, page } from "./page.js";
import { addThumbnail } from "./thumbnails.js";

let stripId = null; // of the patient whose images it has

function stripItem(name, number) {
  const [picture, overlay] = [element("img", "thumbnail"), element("img", "overlay")];
  overlay.alt = "";
  addThumbnail(picture, `thumbnails/${page.currentId}/${number}`);
  const label = element("span", "label", element("b", "", `${number + 1}`), element("span", "name", name), element("span", "share"));
  const button = element("button", "", element("span", "pictures", picture, overlay), label);
  button.type = "button";
  button.title = name;
  button.setAttribute("role", "radio");
  button.addEventListener("click", () => selectImage(number));
  return button;
}

export function showStrip() {
  const names = imageNames();
  $("strip").hidden = names.length < 2;
  if (names.length < 2) return;
  if (stripId !== page.currentId) {
    stripId = page.currentId;
    $("strip").replaceChildren(...names.map(stripItem));
  }
  [...$("strip").children].forEach((button, number) => {
    button.setAttribute("aria-checked", String(number === page.image));
    button.tabIndex = number === page.image ? 0 : -1;
    const parts = imageParts(number);
    const part = parts[page.part];
    // The share of the image at all its magnifications.
    const share = parts.reduce((sum, { shares }) => sum + shares[page.task], 0);
    button.querySelector(".share").textContent = parts.length ? formatPercent(share) : "";
    const overlay = button.querySelector(".overlay");
    overlay.hidden = !part || !$("attention").checked;
    overlay.style.opacity = $("opacity").value;
    if (overlay.hidden) return;
    const address = `thumbnails/${page.currentId}/${number}/attention?${mapQuery(part.number, page.details.answer.key)}`;
    if (overlay.getAttribute("src") !== address) overlay.src = address;
  });
  $("strip").children[page.image].scrollIntoView({ block: "nearest", inline: "nearest" });
}
