"""The HTML report of a run, and the pictures in its folder."""

from ips.errors import require

require("jinja2", "matplotlib", "rich", "scipy", "torchmetrics")

from ips.report.run_report import write_run_report

__all__ = ["write_run_report"]
