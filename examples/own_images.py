"""Four folders of images such as people have them, to try `ips init` on.

    python examples/own_images.py documents /tmp/letters         # drawn: scanned letters
    python examples/own_images.py slides /tmp/biopsies           # drawn: slides of patients
    python examples/own_images.py photographs /tmp/roads --gtsdb GTSDB    # real: road photographs
    python examples/own_images.py limits /tmp/limits --gtsdb GTSDB        # the same, another label

- **documents**: 160 scanned letters of 1,240 x 1,754 px, in a folder for each label. Half of them
  are signed; the others have a stamp, a sketch or a crossed-out line instead.
- **slides**: 90 drawn slides of stained tissue, three of each patient, and a CSV. Half of the
  patients have abnormal nuclei.
- **photographs**: photographs 00000 to 00599 of the German Traffic Sign Detection Benchmark, and a
  CSV of the drive each was taken on and whether it shows a round blue sign, which a sixth of them
  do. A few files are stored in other ways: grey, palette, CMYK, transparent, 16 bits, rotated.
- **limits**: the same photographs as they are, and a CSV of the speed limit that each shows, one of
  eight; two thirds show none.

Then, with nothing to edit:

    ips init /tmp/letters --out letters.yaml
    ips check letters.yaml
    ips train letters.yaml --run runs/letters
    ips view runs/letters /tmp/letters
"""

from __future__ import annotations

import argparse
import csv
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tifffile
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from ips.data.synthetic.tissue_slides import write_tissue_slides

TEXT = (
    "the of a to in we have received your letter and would like to thank for it regarding account "
    "number please find enclosed copy contract which both parties agreed on last month further "
    "questions can be sent office until end year amount due is paid by bank transfer within days"
)
PAPER = (1240, 1754)  # A4 at 150 dpi
BLUE_ROUND = range(33, 41)  # class numbers of the benchmark: mandatory directions
LIMITS = {0: "20", 1: "30", 2: "50", 3: "60", 4: "70", 5: "80", 7: "100", 8: "120"}
DRIVE = 10  # photographs with neighbouring numbers often show the same street


def documents(folder: Path, count: int, seed: int) -> None:
    """Draw letters, signed and unsigned, in a folder for each."""
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        signed = number % 2 == 0
        target = folder / ("signed" if signed else "unsigned") / f"letter-{number:03d}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        letter(rng, signed).save(target)


def letter(rng: np.random.Generator, signed: bool) -> Image.Image:
    """Return a scanned page of text, with a signature at its end or something that is none."""
    page = Image.new("L", PAPER, 255)
    draw = ImageDraw.Draw(page)
    font = ImageFont.load_default(size=int(rng.integers(20, 27)))
    left, top = int(rng.integers(110, 170)), int(rng.integers(150, 300))
    lines = int(rng.integers(14, 30))
    for line in range(lines):
        text = " ".join(rng.choice(TEXT.split(), int(rng.integers(6, 12))))
        draw.text((left, top + 38 * line), text, fill=int(rng.integers(20, 60)), font=font)
    place = (int(rng.integers(left, 760)), top + 38 * lines + int(rng.integers(40, 140)))
    if signed:
        signature(draw, rng, place)
    else:
        rng.choice(np.array([stamp, sketch, crossed_out], object))(draw, rng, place)
    scan = page.rotate(float(rng.normal(0, 0.6)), fillcolor=255).filter(ImageFilter.GaussianBlur(1))
    grain = rng.normal(0, 4, PAPER[::-1]) + rng.uniform(-12, 0)
    return Image.fromarray((np.asarray(scan) + grain).clip(0, 255).astype(np.uint8))


Place = tuple[int, int]


def signature(draw: ImageDraw.ImageDraw, rng: np.random.Generator, place: Place) -> None:
    """Draw a running hand: loops that move to the right."""
    time = np.linspace(0, 1, 160)
    loops = rng.integers(4, 8)
    width, height = rng.integers(150, 260), rng.integers(18, 34)
    turn = 2 * np.pi * loops * time
    x = place[0] + width * time + height * 0.7 * np.sin(turn)
    y = (
        place[1]
        + height * np.cos(turn + rng.uniform(0, 6)) * rng.uniform(0.4, 1, 160).cumsum() / 90
    )
    draw.line(list(zip(x, y, strict=True)), fill=40, width=3, joint="curve")


def stamp(draw: ImageDraw.ImageDraw, rng: np.random.Generator, place: Place) -> None:
    """Draw a round stamp."""
    x, y = place
    side = int(rng.integers(80, 130))
    for inset in (0, 8):
        draw.ellipse(
            (x + inset, y + inset, x + side - inset, y + side - inset), outline=70, width=3
        )
    draw.text((x + side // 4, y + side // 2 - 10), "PAID", fill=70, font_size=22)


def sketch(draw: ImageDraw.ImageDraw, rng: np.random.Generator, place: Place) -> None:
    """Draw a small chart of straight lines."""
    x, y = place
    points = [(x + 30 * i, y + int(rng.integers(0, 70))) for i in range(7)]
    draw.line([(x, y), (x, y + 80), (x + 200, y + 80)], fill=60, width=3)
    draw.line(points, fill=60, width=3)


def crossed_out(draw: ImageDraw.ImageDraw, rng: np.random.Generator, place: Place) -> None:
    """Draw a crossed-out line of text."""
    x, y = place
    draw.text((x, y), " ".join(rng.choice(TEXT.split(), 4)), fill=50, font_size=24)
    draw.line((x - 5, y + 16, x + 260, y + int(rng.integers(8, 22))), fill=50, width=4)


def slides(folder: Path, count: int, seed: int) -> None:
    """Draw slides and a table that gives three of them to each patient."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as place:
        all_files = Path(place) / "drawn"
        write_tissue_slides(all_files, count=count, side=2048, seed=seed, clusters=(3, 6))
        with (all_files / "slides.csv").open(newline="") as file:
            drawn = list(csv.DictReader(file))
        (all_files / "slides").rename(folder / "slides")  # without masks and truth
    rows = []
    for tumor in "01":
        same = [row["path"] for row in drawn if row["tumor"] == tumor]
        for number, path in enumerate(same):
            patient = f"P{tumor}{number // 3:02d}"
            finding = "tumor" if tumor == "1" else "normal"
            rows.append({"slide": path, "patient": patient, "finding": finding})
    write_table(folder / "biopsies.csv", rows)


def photographs(folder: Path, gtsdb: Path, count: int) -> None:
    """Copy photographs with labels of our own, a few of them stored in other ways."""
    signs = read_signs(gtsdb)
    folder.mkdir(parents=True, exist_ok=True)
    odd = dict(zip(range(7, count, max(1, count // len(ODD))), ODD, strict=False))
    rows = []
    for number in range(count):
        stem = f"{number:05d}"
        with Image.open(gtsdb / f"{stem}.jpg") as photograph:
            name = odd.get(number, as_jpeg)(photograph.convert("RGB"), folder / stem)
        verdict = "blue sign" if signs[stem] & set(BLUE_ROUND) else "none"
        rows.append({"filename": name, "drive": f"d{number // DRIVE:02d}", "verdict": verdict})
    write_table(folder / "roads.csv", rows)


def limits(folder: Path, gtsdb: Path, count: int) -> None:
    """Copy photographs, and label them with the speed limit that they show."""
    signs = read_signs(gtsdb)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(count):
        stem = f"{number:05d}"
        shutil.copy(gtsdb / f"{stem}.jpg", folder)
        shown = [LIMITS[kind] for kind in sorted(signs[stem]) if kind in LIMITS]
        rows.append({"filename": f"{stem}.jpg", "limit": shown[0] if shown else "none"})
    write_table(folder / "limits.csv", rows)


def read_signs(gtsdb: Path) -> dict[str, set[int]]:
    """Class numbers of the signs in each photograph, by the stem of its name."""
    signs: dict[str, set[int]] = defaultdict(set)
    for line in (gtsdb / "gt.txt").read_text().splitlines():
        name, *_, kind = line.split(";")
        signs[Path(name).stem].add(int(kind))
    return signs


def as_jpeg(image: Image.Image, path: Path) -> str:
    """Store a photograph as cameras do."""
    return _save(image, path.with_suffix(".jpg"), quality=92)


def as_grey(image: Image.Image, path: Path) -> str:
    """Store it without colour."""
    return _save(image.convert("L"), path.with_suffix(".jpg"), quality=92)


def as_palette(image: Image.Image, path: Path) -> str:
    """Store it with 256 colours."""
    return _save(image.quantize(256), path.with_suffix(".png"))


def as_cmyk(image: Image.Image, path: Path) -> str:
    """Store it in the colours of print."""
    return _save(image.convert("CMYK"), path.with_suffix(".jpg"), quality=92)


def as_transparent(image: Image.Image, path: Path) -> str:
    """Store it with an opacity."""
    image.putalpha(255)
    return _save(image, path.with_suffix(".png"))


def as_16_bits(image: Image.Image, path: Path) -> str:
    """Store it as a TIFF with 16 bits for each colour."""
    target = path.with_suffix(".tif")
    tifffile.imwrite(target, np.asarray(image).astype(np.uint16) * 257, photometric="rgb")
    return target.name


def as_rotated(image: Image.Image, path: Path) -> str:
    """Store the photograph as a camera does that was held upright: turned, with a note."""
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: turn by 90 degrees to the right to see it
    turned = image.transpose(Image.Transpose.ROTATE_90)
    return _save(turned, path.with_suffix(".jpg"), quality=92, exif=exif)


ODD: list[Callable[[Image.Image, Path], str]] = [
    as_grey,
    as_palette,
    as_cmyk,
    as_transparent,
    as_16_bits,
    as_rotated,
]


def _save(image: Image.Image, path: Path, **options: Any) -> str:
    image.save(path, **options)
    return path.name


def write_table(path: Path, rows: list[dict[str, str]]) -> None:
    """Write rows with a header."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Make one of the folders."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["documents", "slides", "photographs", "limits"])
    parser.add_argument("folder", type=Path, help="where the images are written to")
    parser.add_argument("--count", type=int, help="number of images, if you want fewer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gtsdb", type=Path, help="folder with gt.txt and 00000.jpg to 00599.jpg")
    options = parser.parse_args()
    if options.kind == "documents":
        documents(options.folder, options.count or 160, options.seed)
    elif options.kind == "slides":
        slides(options.folder, options.count or 90, options.seed)
    elif options.gtsdb is None:
        parser.error(f"{options.kind} needs --gtsdb FOLDER, which has gt.txt and the images")
    else:
        make = photographs if options.kind == "photographs" else limits
        make(options.folder, options.gtsdb, options.count or 600)


if __name__ == "__main__":
    main()
