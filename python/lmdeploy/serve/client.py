"""``python3 -m lmdeploy.serve.client``: the terminal client of a Triton server (LMDeploy up to 0.4)."""
from __future__ import annotations

import sys
from typing import Any

from ..errors import UnsupportedError


def main(*args: Any, **kwargs: Any) -> None:
    """Raises UnsupportedError (a NotImplementedError)."""
    raise UnsupportedError("servers of Triton are not supported; run `lmdeploy serve api_server MODEL`, and talk to it with "
                           "`lmdeploy serve api_client URL`")


if __name__ == "__main__":
    try:
        main()
    except UnsupportedError as error:
        sys.exit(f"lmdeploy: error: {error}")
