"""What the engine's scheduler is busy with, in LMDeploy's names."""
from __future__ import annotations

from dataclasses import dataclass

from . import _core


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
    """

    active_seqs: int = 0
    waiting_seqs: int = 0
    total_blocks: int = 0
    active_blocks: int = 0
    cached_blocks: int = 0
    free_blocks: int = 0
    prefix_cache_hit_rate: float = 0.0
    scheduler_tick: int = 0

    @property
    def total_seqs(self) -> int:
        return self.active_seqs + self.waiting_seqs

    @property
    def cache_usage(self) -> float:
        """Share of the blocks in use."""
        return self.active_blocks / self.total_blocks if self.total_blocks else 0.0


def schedule_metrics(stats: _core.EngineStats) -> ScheduleMetrics:
    queried = stats.prefix_queried_tokens
    return ScheduleMetrics(active_seqs=stats.running, waiting_seqs=stats.waiting, total_blocks=stats.total_blocks,
                           active_blocks=stats.used_blocks, cached_blocks=stats.cached_blocks,
                           free_blocks=stats.free_blocks,
                           prefix_cache_hit_rate=stats.prefix_hit_tokens / queried if queried else 0.0,
                           scheduler_tick=stats.steps)
