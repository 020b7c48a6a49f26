"""The data sets: images as patch sources, each with its labels."""

from ips.data.synthetic.digits import Digits, load_digits
from ips.data.synthetic.megapixel_mnist import TASKS, MegapixelMNIST
from ips.data.synthetic.megapixel_mnist_files import (
    SavedMegapixelMNIST,
    open_megapixel_mnist,
    save_megapixel_mnist,
    write_png_files,
)
from ips.data.synthetic.scene import ScenePatches

__all__ = [
    "TASKS",
    "Digits",
    "MegapixelMNIST",
    "SavedMegapixelMNIST",
    "ScenePatches",
    "load_digits",
    "open_megapixel_mnist",
    "save_megapixel_mnist",
    "write_png_files",
]
