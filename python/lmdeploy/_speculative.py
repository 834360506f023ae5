"""SpeculativeConfig: how tokens are guessed."""
from __future__ import annotations

from dataclasses import dataclass

from ._config import Config


@dataclass
class SpeculativeConfig(Config):
    """Speculative decoding: tokens are guessed, and one step checks several. Answers stay the same
    (docs/speculative_decoding.md).

    Args:
        method: ``prompt_lookup`` finds the last tokens earlier in prompt and answer; ``draft`` asks a second, small
            model. ``eagle``, ``eagle3`` and ``deepseek_mtp`` are not supported yet.
        model: Of ``draft``: path or hub name of a model with the same vocabulary.
        num_speculative_tokens: Tokens guessed per step at most, 1 to 16; fewer where more do not pay.
    """

    method: str
    model: str = ""
    num_speculative_tokens: int = 1
