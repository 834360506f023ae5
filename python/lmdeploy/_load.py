"""Importing the native module, with one clear message when it cannot be."""
from __future__ import annotations

import importlib
import importlib.machinery
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def built_modules(folder: Path) -> list[str]:
    """File names of native modules in ``folder``, for whatever Python they were built."""
    return sorted(path.name for path in folder.glob("_core*.so"))


def other_installation() -> Path | None:
    """A complete lmdeploy package elsewhere on ``sys.path``."""
    for entry in sys.path:
        folder = Path(entry or ".").resolve() / "lmdeploy"
        if folder != PACKAGE and built_modules(folder):
            return folder
    return None


def explain_missing() -> str:
    """Why ``lmdeploy._core`` is not beside this file, and what to do."""
    found = built_modules(PACKAGE)
    wanted = f"_core{importlib.machinery.EXTENSION_SUFFIXES[0]}"
    if found:
        return (f"lmdeploy: {PACKAGE} holds {', '.join(found)}, which is for another Python; this one "
                f"({sys.executable}, {sys.version.split()[0]}) needs {wanted}. Install lmdeploy for it: pip install .")
    installed = other_installation()
    if installed is not None:
        return (f"lmdeploy was imported from the source folder {PACKAGE}, which has no built module and hides the "
                f"installed package {installed}. Start Python in another folder, or take {PACKAGE.parent} out of "
                "PYTHONPATH.")
    return (f"lmdeploy was imported from the source folder {PACKAGE}, which has no built module ({wanted}), and no "
            "installed lmdeploy was found. Build and install it: `pip install .` in the repository, or `make`; then "
            "start Python in another folder.")


def require_core() -> None:
    """Imports ``lmdeploy._core`` or raises one ImportError that names the folder and the remedy."""
    try:
        importlib.import_module("lmdeploy._core")
    except ModuleNotFoundError as error:
        if error.name != "lmdeploy._core":
            raise
        raise ImportError(explain_missing(), name="lmdeploy._core", path=str(PACKAGE)) from None
    except ImportError as error:
        raise ImportError(f"lmdeploy: the native module in {PACKAGE} does not load: {error}. It was built for another "
                          "system or its libraries are missing; install lmdeploy again on this machine.",
                          name="lmdeploy._core", path=str(PACKAGE)) from error
