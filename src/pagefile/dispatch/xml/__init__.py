"""Payloads as XML: schemas made from the classes, strict reading, and reading with repairs.

Read in this order: forms, writer (with the schema), parser, repair, format.
"""

from pagefile.dispatch.xml.format import Envelope, Repaired, XmlFormat
from pagefile.dispatch.xml.writer import XmlLimits

__all__ = ["Envelope", "Repaired", "XmlFormat", "XmlLimits"]
