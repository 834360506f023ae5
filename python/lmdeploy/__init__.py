"""LMDeploy: run large language models.

    >>> from lmdeploy import pipeline
    >>> pipe = pipeline("path/to/model")
    >>> print(pipe(["Hi, who are you?", "Shanghai is"]))

Everything here runs in one native engine (``lmdeploy._core``); the classes of this package carry LMDeploy's names,
defaults and rules.
"""
from ._load import require_core

require_core()

from . import chat_template  # noqa: E402
from . import serve  # noqa: E402  (a package that can be called, see lmdeploy/serve/__init__.py)
from ._pipeline import Pipeline  # noqa: E402
from ._session import Session  # noqa: E402
from .api import client, pipeline  # noqa: E402
from .errors import LmdeployError, LmdeployWarning  # noqa: E402
from .messages import (  # noqa: E402
    EngineGenerationConfig,
    GenerationConfig,
    PytorchEngineConfig,
    Response,
    SpeculativeConfig,
    TurbomindEngineConfig,
    VisionConfig,
    VisonConfig,
)
from .model import ChatTemplateConfig  # noqa: E402
from .tokenizer import Tokenizer  # noqa: E402
from .version import __version__, version_info  # noqa: E402

__all__ = [
    "ChatTemplateConfig",
    "EngineGenerationConfig",
    "GenerationConfig",
    "LmdeployError",
    "LmdeployWarning",
    "Pipeline",
    "PytorchEngineConfig",
    "Response",
    "Session",
    "SpeculativeConfig",
    "Tokenizer",
    "TurbomindEngineConfig",
    "VisionConfig",
    "VisonConfig",
    "__version__",
    "chat_template",
    "client",
    "pipeline",
    "serve",
    "version_info",
]
