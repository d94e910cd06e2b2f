"""Steps as native libraries: ``export``, ``save`` and ``load``; see the README of the folder."""

from autojit.export.dimensions import Dim
from autojit.export.exporting import ExportedStep, export, load, save
from autojit.export.refusals import ExportError

__all__ = ["Dim", "ExportError", "ExportedStep", "export", "load", "save"]
