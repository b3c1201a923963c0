"""Pages of charts and tables, each a single self-contained file."""

from trimtab.report.backtest_page import build_page, write_report
from trimtab.report.month_page import write_month
from trimtab.report.page import require_libraries
from trimtab.report.verdict_page import write_verdict

__all__ = [
    "build_page",
    "require_libraries",
    "write_month",
    "write_report",
    "write_verdict",
]
