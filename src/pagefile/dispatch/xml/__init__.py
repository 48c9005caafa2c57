"""Payloads as XML: schemas made from the classes, strict reading, and reading with repairs."""

from pagefile.dispatch.xml.format import Envelope, Repaired, XmlFormat
from pagefile.dispatch.xml.writer import XmlLimits

__all__ = ["Envelope", "Repaired", "XmlFormat", "XmlLimits"]
