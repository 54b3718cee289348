"""Pages of a folder of runs: a static report and a live server."""

from nclab.report.server import serve
from nclab.report.site import WrittenReport, write_report

__all__ = ["WrittenReport", "serve", "write_report"]
