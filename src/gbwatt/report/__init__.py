"""Reports: one HTML page, complete in itself, of a store of results or of a trained model."""

from gbwatt.report.model import report_of_model
from gbwatt.report.page import BigTable, Block, Code, Column, Facts, Figure, Fold, Note, Page, Paragraph, Section, Table
from gbwatt.report.render import render
from gbwatt.report.results import report_of_rows

__all__ = [
    "BigTable",
    "Block",
    "Code",
    "Column",
    "Facts",
    "Figure",
    "Fold",
    "Note",
    "Page",
    "Paragraph",
    "Section",
    "Table",
    "render",
    "report_of_model",
    "report_of_rows",
]
