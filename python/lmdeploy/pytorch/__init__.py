"""Names of LMDeploy's PyTorch back end that configure this engine."""
from .._engine_configs import PytorchLegacyEngineConfig as EngineConfig

__all__ = ["EngineConfig"]
