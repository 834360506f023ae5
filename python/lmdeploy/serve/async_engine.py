"""The older name of Pipeline."""
from .._pipeline import Pipeline as AsyncEngine

__all__ = ["AsyncEngine"]
