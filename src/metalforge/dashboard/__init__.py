"""The live page: journals of campaigns -> a page in a browser that follows them, and goes back to any record.

It only reads. What a figure shows comes from `campaign.report.figure_data`, as in the report.
"""

from .beside import page_beside
from .opening import serve

__all__ = ["page_beside", "serve"]
