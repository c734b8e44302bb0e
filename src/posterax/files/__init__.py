"""Files: written whole, and checked before they are believed."""

from .saved import about, load

__all__ = ["about", "load"]
