"""What the engine's scheduler is busy with, in LMDeploy's names."""
from __future__ import annotations

from dataclasses import dataclass, field

from . import _core


@dataclass
class SpeculativeMetrics:
    """What guessing tokens has brought so far; all 0 without a ``speculative_config``.

    Args:
        num_drafts: Steps of a sequence that had guesses to check.
        num_draft_tokens: Tokens guessed.
        num_accepted_tokens: Those that were right.
        num_accepted_tokens_per_pos: The same by their place among the guesses of a step.
        gain: How many times as fast decoding has been; 1 where nothing is known.
    """

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_accepted_tokens_per_pos: list[int] = field(default_factory=list)
    gain: float = 1.0

    @property
    def mean_accept_rate(self) -> float:
        """Share of the guessed tokens that were right."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else 0.0

    @property
    def mean_accept_length(self) -> float:
        """Tokens per step that had guesses: those that were right, and the one after them."""
        return 1 + self.num_accepted_tokens / self.num_drafts if self.num_drafts else 0.0


@dataclass
class ScheduleMetrics:
    """The engine at one moment.

    Args:
        active_seqs: Sequences in the running batch.
        waiting_seqs: Sequences that wait for their turn.
        total_blocks: Blocks of keys and values.
        active_blocks: Those in use.
        cached_blocks: Those kept for their content alone.
        free_blocks: Those that hold nothing.
        prefix_cache_hit_rate: Share of the prompt tokens so far that the prefix cache held.
        scheduler_tick: Steps so far.
        speculative: What guessing tokens has brought.
    """

    active_seqs: int = 0
    waiting_seqs: int = 0
    total_blocks: int = 0
    active_blocks: int = 0
    cached_blocks: int = 0
    free_blocks: int = 0
    prefix_cache_hit_rate: float = 0.0
    scheduler_tick: int = 0
    speculative: SpeculativeMetrics = field(default_factory=SpeculativeMetrics)

    @property
    def total_seqs(self) -> int:
        return self.active_seqs + self.waiting_seqs

    @property
    def cache_usage(self) -> float:
        """Share of the blocks in use."""
        return self.active_blocks / self.total_blocks if self.total_blocks else 0.0


def schedule_metrics(stats: _core.EngineStats) -> ScheduleMetrics:
    queried = stats.prefix_queried_tokens
    speculative = SpeculativeMetrics(stats.num_drafts, stats.num_draft_tokens, stats.num_accepted_tokens,
                                     list(stats.num_accepted_tokens_per_pos), stats.speculative_gain)
    return ScheduleMetrics(active_seqs=stats.running, waiting_seqs=stats.waiting, total_blocks=stats.total_blocks,
                           active_blocks=stats.used_blocks, cached_blocks=stats.cached_blocks,
                           free_blocks=stats.free_blocks,
                           prefix_cache_hit_rate=stats.prefix_hit_tokens / queried if queried else 0.0,
                           scheduler_tick=stats.steps, speculative=speculative)
