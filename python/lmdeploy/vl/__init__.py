"""Pictures. No model takes any yet: every function says so."""
from __future__ import annotations

from typing import Any

from ..errors import UnsupportedError


def _refuse(name: str) -> Any:
    raise UnsupportedError(f"lmdeploy.vl.{name}: no model takes pictures, video or time series yet; prompts are text")


def load_image(image_url: Any, **kwargs: Any) -> Any:
    """Raises UnsupportedError (a NotImplementedError)."""
    return _refuse("load_image")


def load_video(video_url: Any, **kwargs: Any) -> Any:
    """Raises UnsupportedError (a NotImplementedError)."""
    return _refuse("load_video")


def load_time_series(url: Any, **kwargs: Any) -> Any:
    """Raises UnsupportedError (a NotImplementedError)."""
    return _refuse("load_time_series")


def encode_image_base64(image: Any, **kwargs: Any) -> str:
    """Raises UnsupportedError (a NotImplementedError)."""
    return _refuse("encode_image_base64")


def encode_video_base64(video: Any, **kwargs: Any) -> str:
    """Raises UnsupportedError (a NotImplementedError)."""
    return _refuse("encode_video_base64")


def encode_time_series_base64(data: Any, **kwargs: Any) -> str:
    """Raises UnsupportedError (a NotImplementedError)."""
    return _refuse("encode_time_series_base64")


__all__ = ["encode_image_base64", "encode_time_series_base64", "encode_video_base64", "load_image",
           "load_time_series", "load_video"]
