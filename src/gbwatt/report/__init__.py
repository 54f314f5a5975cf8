"""Reports of results or of a trained model, as self-contained HTML pages."""

from gbwatt.experiments.table_formats import Column, Table
from gbwatt.report.model_report import report_of_model
from gbwatt.report.page import BigTable, Block, Code, Facts, Figure, Fold, Note, Page, Paragraph, Section, render
from gbwatt.report.results_report import report_of_rows

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
