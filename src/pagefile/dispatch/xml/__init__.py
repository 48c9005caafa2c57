"""Payloads as XML: schemas made from the classes, strict reading, and reading with repairs."""

from pagefile.dispatch.xml.envelope import Envelope
from pagefile.dispatch.xml.format import Repaired, XmlFormat
from pagefile.dispatch.xml.limits import XmlLimits

__all__ = ["Envelope", "Repaired", "XmlFormat", "XmlLimits"]
