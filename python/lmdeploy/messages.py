"""Configs and results under the import path that LMDeploy documents."""
from __future__ import annotations

from dataclasses import dataclass

from ._config import Config
from ._engine_configs import PytorchEngineConfig, QuantPolicy, TurbomindEngineConfig
from ._generation import EngineGenerationConfig, GenerationConfig
from ._rendering import PromptPreview
from ._response import EngineOutput, GenOut, Response, ResponseType
from ._schedule_metrics import ScheduleMetrics, SpeculativeMetrics
from ._speculative import SpeculativeConfig


@dataclass
class VisionConfig(Config):
    """Options of image encoders. No model here takes images yet, so a pipeline refuses it."""

    max_batch_size: int = 1
    thread_safe: bool = False


VisonConfig = VisionConfig  # the spelling of 0.4


__all__ = [
    "EngineGenerationConfig",
    "EngineOutput",
    "GenOut",
    "GenerationConfig",
    "PromptPreview",
    "PytorchEngineConfig",
    "QuantPolicy",
    "Response",
    "ResponseType",
    "ScheduleMetrics",
    "SpeculativeConfig",
    "SpeculativeMetrics",
    "TurbomindEngineConfig",
    "VisionConfig",
    "VisonConfig",
]
