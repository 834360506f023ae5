"""Models of a hub by name."""
from __future__ import annotations

import os
import sys
from typing import Any

from . import _core
from ._inputs import check_path, check_text
from ._progress import Progress


def local_path(model_path: Any, revision: str | None = None, download_dir: Any = None, weights: bool = True) -> str:
    """``model_path`` if there is such a path, else where the files of the hub's model of that name are.

    Downloads what is missing; on a terminal with a progress bar. ``weights`` False: configs and tokenizer are enough.

    Raises:
        NotFoundError: (a FileNotFoundError) neither such a path nor such a model.
        IoError: (an OSError) the hub cannot be reached or does not let us in.
    """
    path = check_path(model_path, "model_path")
    if os.path.exists(path):
        return path
    version = "" if revision is None else check_text(revision, "revision")
    folder = "" if download_dir is None else check_path(download_dir, "download_dir")
    if not sys.stderr.isatty():
        return os.fspath(_core.fetch_model(path, version, folder, weights))
    with Progress(f"Downloading {path}", "B") as progress:
        return os.fspath(_core.fetch_model(path, version, folder, weights, progress))
