"""Pretraining of an encoder on unlabelled patches with BYOL."""

from ips.errors import require

require("kornia", "lightning", "rich")
