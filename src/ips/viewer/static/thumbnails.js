// Small pictures of images. They are requested one after the other, so that they do not
// delay the tiles of the current image, and only for items that are visible.

const queue = [];
let isLoading = false;

const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    observer.unobserve(target);
    queue.push(target);
  }
  loadNext();
});

function loadNext() {
  if (isLoading || !queue.length) return;
  isLoading = true;
  const picture = queue.shift();
  picture.src = picture.dataset.address;
}

export function addThumbnail(picture, address) {
  picture.alt = "";
  picture.dataset.address = address;
  const finish = () => {
    isLoading = false;
    loadNext();
  };
  picture.addEventListener("load", () => {
    picture.classList.add("loaded");
    finish();
  });
  picture.addEventListener("error", finish);
  observer.observe(picture);
}
