"""TurboMind and its instances: token ids in, token ids and logits out."""
from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import numpy

from .. import _core
from .._engine_configs import EngineConfig
from .._generation import EngineGenerationConfig, GenerationConfig
from .._inputs import check_flag, check_id_lists, check_int, check_session_id
from .._native import native_generation_config
from .._pipeline import score
from .._requests import resolve_configs
from .._response import EngineOutput, ResponseType, stacked
from .._stream import read, read_async
from ..errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError
from ..model import ChatTemplateConfig
from ..tokenizer import Tokenizer

_STATUS_BY_CODE = {
    "invalid_argument": ResponseType.INPUT_LENGTH_ERROR,  # ids and configs are checked before
    "busy": ResponseType.SESSION_REPEAT,
    "not_found": ResponseType.SESSION_NOT_EXIST,
    "resource_exhausted": ResponseType.OUT_OF_MEMORY,
    "closed": ResponseType.ENGINE_STOP_ERROR,
}
_STATUS_BY_FINISH = {None: ResponseType.SUCCESS, "stop": ResponseType.FINISH, "length": ResponseType.FINISH,
                     "abort": ResponseType.CANCEL}


def _checked_ids(input_ids: Any, vocab_size: int) -> list[int]:
    """One list of ids; a list that holds just one such list will do."""
    lists = check_id_lists(input_ids, "input_ids", vocab_size)
    if len(lists) > 1:
        raise ArgumentTypeError(f"input_ids holds {len(lists)} lists; expected one")
    if not lists or not lists[0]:
        raise InvalidArgumentError("input_ids is empty; expected at least one token id")
    return lists[0]


class TurboMind:
    """A loaded model; made by ``TurboMind.from_pretrained``. Works for a checkpoint without a tokenizer."""

    def __init__(self, model_path: str, engine_config: EngineConfig | None = None,
                 chat_template_config: ChatTemplateConfig | None = None, **kwargs: Any):
        from .._pipeline import Pipeline
        self._pipe = Pipeline(model_path, engine_config, chat_template_config, **kwargs)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str, engine_config: EngineConfig | None = None,
                        model_name: str | None = None, model_format: str | None = None,
                        group_size: int | None = None, tp: int | None = None,
                        chat_template_config: ChatTemplateConfig | None = None, **kwargs: Any) -> TurboMind:
        """Loads a model.

        Args:
            pretrained_model_name_or_path: As ``model_path`` of ``lmdeploy.pipeline``.
            engine_config: How it is run; ``model_format``, ``tp`` and further keywords are fields that win over it.
            group_size: Only of 4-bit checkpoints, which say it themselves.

        Raises:
            NotFoundError, UnsupportedError, InvalidDataError, ArgumentTypeError: as ``lmdeploy.pipeline``.
        """
        if group_size is not None:
            raise UnsupportedError("group_size: the checkpoint says it itself; leave it out")
        loose = {"model_name": model_name, "model_format": model_format, "tp": tp, **kwargs}
        given = {name: value for name, value in loose.items() if value is not None}
        return cls(pretrained_model_name_or_path, engine_config, chat_template_config, **given)

    @property
    def tokenizer(self) -> Tokenizer | None:
        """None for a checkpoint without one."""
        return self._pipe.tokenizer

    @property
    def session_len(self) -> int:
        """Most tokens of a session."""
        return self._pipe.session_len

    @property
    def model_name(self) -> str:
        """The path or name the model was opened with."""
        return self._pipe.model_name

    def create_instance(self, cuda_stream_id: int = 0) -> TurboMindInstance:
        """What runs requests, one at a time each. ``cuda_stream_id`` has no effect: the engine owns its streams."""
        return TurboMindInstance(self)

    def close(self) -> None:
        """Cancels what runs and frees engine and weights. A second call does nothing."""
        self._pipe.close()

    def __enter__(self) -> TurboMind:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class TurboMindInstance:
    """Runs requests of a TurboMind, one at a time."""

    def __init__(self, model: TurboMind):
        self._model = model
        self._core = model._pipe._core
        self._running: dict[int, Any] = {}  # session_id -> its group

    def stream_infer(self, session_id: int, input_ids: Sequence[int], sequence_start: bool = True,
                     sequence_end: bool = False, step: int = 0, stop: bool = False,
                     gen_config: EngineGenerationConfig | GenerationConfig | None = None, stream_output: bool = False,
                     adapter_name: str | None = None, input_embeddings: Any = None,
                     input_embedding_ranges: Any = None) -> Iterator[EngineOutput]:
        """Continues a session by ``input_ids`` and generates.

        Args:
            session_id: Names the session, 0 or more.
            input_ids: Token ids of this request.
            sequence_start: Begin the session anew; False: continue it.
            sequence_end: Free the session afterwards; False: keep it for a later request.
            step: Above 0, with ``sequence_start`` False: first roll the session back to that many tokens.
            stop: Cancel what the session runs instead.
            gen_config: Default: greedy, at most 512 tokens.
            stream_output: Yield tokens as they come; False: all at once.

        Yields:
            EngineOutput; its token_ids are the new ones. An error is an output with another status, not an exception.

        Raises:
            InvalidArgumentError: (a ValueError) ids outside the vocabulary, or a bad gen_config.
        """
        _refuse_pictures(input_embeddings, adapter_name)
        if stop:
            self.cancel(session_id)
            return iter(())
        group = self._submit(session_id, input_ids, sequence_start, sequence_end, step, gen_config)
        return self._outputs(session_id, group, stream_output)

    async def async_stream_infer(self, session_id: int, input_ids: Sequence[int], sequence_start: bool = True,
                                 sequence_end: bool = False, step: int = 0, stop: bool = False,
                                 gen_config: EngineGenerationConfig | GenerationConfig | None = None,
                                 stream_output: bool = False, adapter_name: str | None = None,
                                 input_embeddings: Any = None,
                                 input_embedding_ranges: Any = None) -> AsyncIterator[EngineOutput]:
        """As ``stream_infer``, without blocking the event loop."""
        _refuse_pictures(input_embeddings, adapter_name)
        if stop:
            self.cancel(session_id)
            return
        group = self._submit(session_id, input_ids, sequence_start, sequence_end, step, gen_config)
        collected = EngineOutput(ResponseType.SUCCESS)
        try:
            async for _, native in read_async(group):
                output = self._output(native)
                _append(collected, output)
                if stream_output:
                    yield output
        finally:
            self._running.pop(session_id, None)
        if not stream_output:
            yield collected

    def decode(self, input_ids: Any, steps: Any = None, sequence_start: bool = True,
               sequence_end: bool = True) -> numpy.ndarray:
        """Logits at every position.

        Args:
            input_ids: Token ids, or a list of such lists. They are not changed.
            steps, sequence_start, sequence_end: Only their defaults: each list is a sequence of its own.

        Returns:
            float32 [batch, longest list, vocab_size]; row i predicts token i + 1. Rows past the end of a list are 0.
        """
        if steps is not None or not sequence_start or not sequence_end:
            raise UnsupportedError("decode: steps, sequence_start and sequence_end must keep their defaults; use "
                                   "stream_infer with output_logits to continue a session")
        lists = check_id_lists(input_ids, "input_ids", self._core.vocab_size)
        if not all(lists):
            raise InvalidArgumentError(f"input_ids[{lists.index([])}] is empty; expected at least one token id")
        group = _core.RequestGroup(self._core)
        for ids in lists:
            group.submit(_logits_request(ids))
        logits = numpy.zeros((len(lists), max(map(len, lists), default=0), self._core.vocab_size), numpy.float32)
        filled = [0] * len(lists)
        for idx, native in read(group):
            if native.finish_reason == "error":
                raise InvalidArgumentError(f"decode: input_ids[{idx}]: {native.error_message}")
            rows = native.take_logits(self._core.vocab_size)
            if rows is not None:
                logits[idx, filled[idx]:filled[idx] + len(rows)] = rows
                filled[idx] += len(rows)
        return logits

    def get_ppl(self, input_ids: Any) -> list[float]:
        """Mean negative log-likelihood per token in nats (not exponentiated) of each list; see ``Pipeline.get_ppl``."""
        return score(self._core, input_ids)

    def cancel(self, session_id: int) -> None:
        """Interrupts what the session runs; what was generated stays in it."""
        _native_id(session_id)
        if session_id in self._running:
            self._running[session_id].cancel_all()

    async def async_cancel(self, session_id: int) -> None:
        """As ``cancel``."""
        self.cancel(session_id)

    def end(self, session_id: int) -> None:
        """Frees the session; unknown ids are ignored."""
        self._core.end_session_id(_native_id(session_id))

    async def async_end(self, session_id: int) -> None:
        """As ``end``."""
        self.end(session_id)

    def _submit(self, session_id: int, input_ids: Any, sequence_start: bool, sequence_end: bool, step: int,
                gen_config: Any) -> Any:
        ids = _checked_ids(input_ids, self._core.vocab_size)
        request = self._request(ids, resolve_configs(gen_config, 1)[0])
        request.session_id = _native_id(session_id)
        request.sequence_start = check_flag(sequence_start, "sequence_start")
        request.sequence_end = check_flag(sequence_end, "sequence_end")
        if check_int(step, "step") > 0 and not sequence_start:
            request.step = step
        group = _core.RequestGroup(self._core)
        group.submit(request)
        self._running[session_id] = group
        return group

    def _request(self, ids: list[int], config: GenerationConfig) -> _core.Request:
        if config.n != 1 or config.stop_words or config.bad_words:
            raise UnsupportedError("gen_config of an instance: n, stop_words and bad_words are for text; use n=1, "
                                   "stop_token_ids and bad_token_ids")
        if config.return_ppl:
            raise UnsupportedError("gen_config of an instance: return_ppl is for pipelines; use get_ppl")
        native = native_generation_config(config)
        native.validate()
        request = _core.Request()
        request.set_input_ids(ids)
        request.sampling = _sampling(native)
        request.max_new_tokens = -1 if config.max_new_tokens is None else config.max_new_tokens
        request.min_new_tokens = config.min_new_tokens or 0
        request.stop_ids = [] if config.ignore_eos else [*self._core.eos_ids, *(config.stop_token_ids or ())]
        request.include_stop_id = config.include_stop_str_in_output
        request.repetition_ngram_size = max(config.repetition_ngram_size, 0)
        request.repetition_ngram_threshold = max(config.repetition_ngram_threshold, 0)
        request.num_logprobs = -1 if config.logprobs is None else config.logprobs
        request.logits = native.output_logits
        request.hidden_states = native.output_last_hidden_state
        request.set_logits_processors(config.logits_processors or [])
        self._core.constrain(request, native)
        return request

    def _outputs(self, session_id: int, group: Any, stream_output: bool) -> Iterator[EngineOutput]:
        collected = EngineOutput(ResponseType.SUCCESS)
        try:
            for _, native in read(group):
                output = self._output(native)
                _append(collected, output)
                if stream_output:
                    yield output
        finally:
            self._running.pop(session_id, None)
        if not stream_output:
            yield collected

    def _output(self, native: _core.RequestOutput) -> EngineOutput:
        reason = native.finish_reason
        status = _STATUS_BY_FINISH.get(reason)
        if status is None:
            status = _STATUS_BY_CODE.get(native.error_code, ResponseType.INTERNAL_ENGINE_ERROR)
        return EngineOutput(status, native.token_ids, native.generated_tokens, native.logprobs,
                            native.take_logits(self._core.vocab_size),
                            native.take_hidden_states(self._core.hidden_size), cached_tokens=native.cached_tokens,
                            error_message=native.error_message or None)


def _native_id(session_id: int) -> int:
    """The engine's id 0 means a session without a name."""
    return check_session_id(session_id) + 1


def _refuse_pictures(input_embeddings: Any, adapter_name: str | None) -> None:
    if input_embeddings is not None:
        raise UnsupportedError("input_embeddings: no model takes images yet")
    if adapter_name is not None:
        raise UnsupportedError(f"adapter_name={adapter_name!r}: LoRA adapters are not supported yet")


def _sampling(config: _core.GenerationConfig) -> _core.SamplingParams:
    sampling = _core.SamplingParams()
    for name in ("repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias"):
        setattr(sampling, name, getattr(config, name))
    sampling.bad_words = [[token] for token in config.bad_token_ids]
    if config.do_sample and config.temperature > 0:
        for name in ("temperature", "top_k", "min_p"):
            setattr(sampling, name, getattr(config, name))
        sampling.top_p = max(config.top_p, 1e-30)  # the smallest set that reaches 0 is the best token alone
        sampling.seed = secrets.randbits(64) if config.random_seed is None else config.random_seed
    return sampling


def _logits_request(ids: list[int]) -> _core.Request:
    request = _core.Request()
    request.set_input_ids(ids)
    request.max_new_tokens = 0
    request.logits = _core.OutputRows.ALL
    return request


def _append(collected: EngineOutput, output: EngineOutput) -> None:
    collected.token_ids.extend(output.token_ids)
    if output.logprobs is not None:
        collected.logprobs = [*(collected.logprobs or ()), *output.logprobs]
    collected.logits = stacked(collected.logits, output.logits)
    collected.last_hidden_state = stacked(collected.last_hidden_state, output.last_hidden_state)
    for name in ("status", "num_token", "cached_tokens", "error_message"):
        setattr(collected, name, getattr(output, name))
