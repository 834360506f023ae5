"""The older place of the picture helpers."""
from . import encode_image_base64, load_image

__all__ = ["encode_image_base64", "load_image"]
