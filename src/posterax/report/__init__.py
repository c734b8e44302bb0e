"""The report: one HTML file about a fitted model, for people who were not there."""

from .build import render, write_report

write = write_report

__all__ = ["render", "write", "write_report"]
