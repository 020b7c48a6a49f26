"""Learn from patches without labels, and store what was learnt as features."""

from ips.errors import require

require("kornia", "lightning", "rich")
