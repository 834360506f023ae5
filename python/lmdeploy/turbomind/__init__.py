"""TurboMind: the engine by token ids, below text and chat templates."""
from .._engine_configs import TurbomindLegacyEngineConfig as EngineConfig
from .turbomind import TurboMind, TurboMindInstance

__all__ = ["EngineConfig", "TurboMind", "TurboMindInstance"]
