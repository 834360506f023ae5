"""The asynchronous half of Pipeline: answers that do not block an event loop."""
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

from . import _core
from ._generation import GenerationConfig
from ._inputs import check_flag, check_int, check_session_id
from ._prompts import split_prompts
from ._rendering import Rendering
from ._requests import refuse_adapter, resolve_configs
from ._response import GenOut, first_piece, response_from_native
from ._session import Session, end_turn
from ._stream import read_async
from .errors import ArgumentTypeError, InvalidArgumentError, NotFoundError, UnsupportedError


class Done(Coroutine[Any, Any, None]):
    """What a method that documents itself as asynchronous returns once its work is done: one may await it, or not."""

    def __await__(self) -> Iterator[Any]:
        return iter(())

    def send(self, value: Any) -> Any:
        raise StopIteration

    def throw(self, *exception: Any) -> Any:
        raise exception[1] if len(exception) > 1 and exception[1] is not None else exception[0]

    def close(self) -> None:
        pass


class AsyncAnswers:
    """Base of Pipeline, which brings the members declared first."""

    _core: _core.Pipeline
    _sessions: dict[int, Session]  # of generate(sequence_end=False)
    _running: dict[int, Any]  # session_id of generate() -> what runs

    def session(self) -> Session:
        """A new conversation."""
        raise NotImplementedError

    def _start(self, group: Any, batch: list[Any], configs: list[GenerationConfig], rendering: Rendering) -> None:
        raise NotImplementedError

    def _start_turn(self, group: Any, prompt: Any, config: GenerationConfig, session: Session,
                    rendering: Rendering) -> None:
        raise NotImplementedError

    async def generate(self, messages: Any, session_id: int | None = None,
                       gen_config: GenerationConfig | None = None, adapter_name: str | None = None,
                       stream_response: bool = True, sequence_start: bool = True, sequence_end: bool = True,
                       step: int = 0, do_preprocess: bool = True,
                       **template_arguments: Any) -> AsyncIterator[GenOut]:
        """Answers one prompt piece by piece without blocking the event loop.

        Args:
            messages: Text or a list of {"role", "content"} messages.
            session_id: 0 or more; names the request for ``stop_session`` and, with ``sequence_end`` False, the
                conversation.
            sequence_start: False continues the conversation ``session_id``.
            sequence_end: False keeps it for a later call (``messages`` must then be text).
            step: Must be 0 or, with ``sequence_start`` False, the session's; ``TurboMind`` instances can roll back.
            stream_response: False yields the answer in one piece.
            template_arguments: As ``infer`` takes them.

        Yields:
            GenOut, a Response whose text and token_ids hold what is new.

        Raises:
            BusyError: (a RuntimeError) the conversation runs a turn already.
        """
        refuse_adapter(adapter_name)
        session_id = None if session_id is None else check_session_id(session_id)
        for name, flag in (("stream_response", stream_response), ("sequence_start", sequence_start),
                           ("sequence_end", sequence_end)):
            check_flag(flag, name)
        batch, single = split_prompts(messages)
        if not single:
            raise ArgumentTypeError("generate answers one prompt; start one generate() for each")
        config = resolve_configs(gen_config, 1)[0]
        rendering = Rendering.of(do_preprocess, **template_arguments)
        group = _core.ResponseGroup(self._core)
        session = self._session_of(session_id, sequence_start, sequence_end, step)
        if session is not None:
            await asyncio.to_thread(self._start_turn, group, messages, config, session, rendering)
        else:
            await asyncio.to_thread(self._start, group, batch, [config], rendering)
        async for out in self._generate(group, messages, session, session_id, stream_response):
            yield out
        if session is not None and sequence_end and session_id is not None:
            self.end_session(session_id)

    def stop_session(self, session_id: int) -> Done:
        """Ends what ``generate`` runs for this id; its last piece has finish_reason ``abort``. Unknown ids are ignored.

        The work is done when the call returns, from any thread; what it returns may be awaited, as LMDeploy's may.
        """
        group = self._running.get(check_session_id(session_id))
        if group is not None:
            group.cancel_all()
        return Done()

    def end_session(self, session_id: int) -> Done:
        """Frees the conversation that ``generate`` keeps under this id; unknown ids are ignored.

        The work is done when the call returns, from any thread; what it returns may be awaited, as LMDeploy's may.
        """
        session = self._sessions.pop(check_session_id(session_id), None)
        if session is not None:
            session.close()
        return Done()

    def get_generator(self, stop: bool, session_id: int) -> Any:
        """Internal to LMDeploy's servers. Raises UnsupportedError."""
        raise UnsupportedError("get_generator is not there: iterate over generate(), and use stop_session() to stop it")

    async def _generate(self, group: Any, messages: Any, session: Session | None, session_id: int | None,
                        stream_response: bool) -> AsyncIterator[GenOut]:
        whole: Any = None
        if session_id is not None:
            self._running[session_id] = group
        try:
            async for _, native in read_async(group):
                piece = response_from_native(native, self._core, GenOut)
                piece.session_id = session_id or 0
                whole = first_piece(piece) if whole is None else whole.extend(piece)
                if piece.finish_reason is not None and session is not None:
                    end_turn(session, group, messages, whole)
                if stream_response or piece.finish_reason is not None:
                    yield piece if stream_response else whole
        finally:
            group.cancel_all()
            if session is not None:
                session._release(group)
            if session_id is not None and self._running.get(session_id) is group:
                self._running.pop(session_id)

    def _session_of(self, session_id: int | None, sequence_start: bool, sequence_end: bool,
                    step: int) -> Session | None:
        """The conversation of a generate() call; None for one that stands alone."""
        if check_int(step, "step") != 0 and sequence_start:
            raise InvalidArgumentError(f"generate: step is {step} with sequence_start; expected 0: a new conversation "
                                       "holds nothing yet")
        if sequence_start and sequence_end:
            return None
        if session_id is None:
            raise InvalidArgumentError("generate: sequence_start=False and sequence_end=False need a session_id")
        if sequence_start:
            self._sessions[session_id] = self.session()
        if session_id not in self._sessions:
            raise NotFoundError(f"generate: there is no session {session_id} to continue")
        session = self._sessions[session_id]
        if step not in (0, session.step):
            raise UnsupportedError(f"generate: step {step} is not the session's {session.step}; only TurboMind "
                                   "instances can roll back")
        return session
