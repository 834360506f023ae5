"""Modules that were programs in older versions: ``python -m lmdeploy.serve.openai.api_server MODEL``."""
from __future__ import annotations

import sys

from .__main__ import main


def run_command(*words: str) -> None:
    """Becomes ``lmdeploy WORDS...`` with the arguments of this process."""
    sys.argv[1:1] = words
    sys.exit(main())
