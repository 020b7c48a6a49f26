"""``python -m ips`` is ``ips``."""

from ips.cli import main

main()
