"""Pipeline: a loaded model that answers prompts."""
from __future__ import annotations

import atexit
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from . import _core
from ._async import AsyncAnswers
from ._generation import GenerationConfig
from ._hub import local_path
from ._inputs import check_id_lists, check_path, check_text
from ._opening import (
    check_speculative_config,
    check_template_config,
    engine_config,
    logger,
    open_core,
    python_template,
    set_log_level,
)
from ._progress import Progress
from ._prompts import split_prompts
from ._rendering import PromptPreview, Rendering
from ._requests import native_configs, refuse_adapter, resolve_configs
from ._response import Response, first_piece, response_from_native
from ._schedule_metrics import ScheduleMetrics, schedule_metrics
from ._session import Session, end_turn
from ._stream import read
from ._warn import warn_once
from .errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError
from .model import ChatTemplateConfig, NativeTemplate
from .tokenizer import Tokenizer

_open_pipelines: weakref.WeakSet[Pipeline] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Engine threads end before the interpreter takes things apart."""
    for pipe in list(_open_pipelines):
        pipe.close()


class Pipeline(AsyncAnswers):
    """A loaded model that answers prompts; made by ``lmdeploy.pipeline``.

    Any number of threads may use one pipeline at once; calls may also come from a running event loop (``generate`` is
    the one that does not block it). The GIL is not held while the model works. Ctrl-C ends the call it interrupts and
    cancels what that call started; the pipeline stays usable. A pipeline cannot be used in a process forked after it
    was opened: open it there, or use the multiprocessing method "spawn".

    Attributes:
        model_path: Where the model's files are.
        backend_config: The engine config in use.
    """

    def __init__(self, model_path: str, backend_config: Any = None,
                 chat_template_config: ChatTemplateConfig | None = None, log_level: str = "WARNING",
                 max_log_len: int | None = None, speculative_config: Any = None, trust_remote_code: bool = False,
                 allowed_media_domains: list[str] | None = None, **kwargs: Any):
        """See ``lmdeploy.pipeline``; further keywords are fields of the engine config."""
        set_log_level(log_level)
        if trust_remote_code:
            warn_once("trust_remote_code has no effect: code of a checkpoint is never run")
        if allowed_media_domains is not None:
            warn_once("allowed_media_domains has no effect: models take text only")
        self.backend_config = engine_config(backend_config, kwargs)
        template_config = check_template_config(chat_template_config)
        self._model_name = check_path(model_path, "model_path")
        self.model_path = local_path(model_path, self.backend_config.revision, self.backend_config.download_dir)
        self._max_log_len = max_log_len
        self._template = python_template(template_config, self._model_name)
        native_template = template_config if self._template is None else None
        speculative = check_speculative_config(speculative_config)
        self._core = open_core(self._model_name, self.model_path, self.backend_config, native_template, speculative)
        self._sessions = {}
        self._running = {}
        _open_pipelines.add(self)

    # ---- what is loaded

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The model's tokenizer; None for a checkpoint without one."""
        native = self._core.tokenizer
        return Tokenizer._of(native) if native is not None else None

    @property
    def session_len(self) -> int:
        """Most tokens of prompt and answer together."""
        return self._core.session_len

    @property
    def model_name(self) -> str:
        """The path or name the model was opened with."""
        return self._model_name

    @property
    def chat_template(self) -> Any:
        """The template in use, with ``get_prompt`` and ``messages2prompt``; None for a checkpoint without tokenizer."""
        native = self._core.chat_template
        if self._template is not None or native is None:
            return self._template
        return NativeTemplate(native)

    @property
    def instance_num(self) -> int:
        """Most prompts that run at once."""
        return self.backend_config.max_batch_size or 128

    # ---- prompts in, responses out

    def __call__(self, prompts: Any, gen_config: GenerationConfig | Sequence[GenerationConfig] | None = None,
                 do_preprocess: bool = True, adapter_name: str | None = None, use_tqdm: bool = False,
                 **kwargs: Any) -> Response | list[Response]:
        """The same as ``infer``."""
        return self.infer(prompts, gen_config, do_preprocess, adapter_name, use_tqdm, **kwargs)

    def infer(self, prompts: Any, gen_config: GenerationConfig | Sequence[GenerationConfig] | None = None,
              do_preprocess: bool = True, adapter_name: str | None = None, use_tqdm: bool = False, *,
              request_output_len: int | None = None, top_k: int | None = None, top_p: float | None = None,
              temperature: float | None = None, repetition_penalty: float | None = None,
              ignore_eos: bool | None = None,
              chat_template_config: ChatTemplateConfig | None = None,
              **template_arguments: Any) -> Response | list[Response]:
        """Answers one prompt or a batch.

        Args:
            prompts: Text, a list of {"role", "content"} messages, or a list of either.
            gen_config: One for all prompts, or a list with one per prompt; None: greedy, at most 512 tokens.
            do_preprocess: False takes texts as they are, without the chat template.
            adapter_name: LoRA adapters are not supported yet.
            use_tqdm: Shows a progress bar.
            request_output_len, top_k, top_p, temperature, repetition_penalty, ignore_eos: The older way to give a
                gen_config, honoured when there is none.
            chat_template_config: Another chat template for this call.
            template_arguments: What the chat template gets to see. ``tools``: functions the model may call;
                ``chat_template_kwargs``: a dict of further variables, ``enable_thinking`` and ``reasoning_effort``
                two of them by name; ``add_generation_prompt``: False opens no answer; ``continue_final_message``:
                the prompt ends inside the last message, which the answer continues.

        Returns:
            One Response for a single prompt, otherwise a list in the order of the prompts; an empty list for none. A
            prompt that does not fit into ``session_len`` gives a Response with empty text, finish_reason ``length`` and
            ``error_message``.

        Raises:
            InvalidArgumentError: (a ValueError) a prompt that is not text, or a bad gen_config; nothing has run then.
            ClosedError: (a RuntimeError) the pipeline has been closed.
        """
        refuse_adapter(adapter_name)
        batch, single = split_prompts(prompts)
        loose = {"request_output_len": request_output_len, "top_k": top_k, "top_p": top_p, "temperature": temperature,
                 "repetition_penalty": repetition_penalty, "ignore_eos": ignore_eos}
        configs = resolve_configs(gen_config, len(batch), loose)
        template = self._template_for(chat_template_config)
        natives = native_configs(configs, _stop_words(template))
        rendering = Rendering.of(do_preprocess, **template_arguments)
        with Progress("Answering", "prompt", len(batch)) as progress:
            results = self._core.infer([self._native_prompt(p, rendering, template) for p in batch], natives,
                                       rendering.native(), progress if use_tqdm else None) if batch else []
        responses = self._group_choices(results, configs)
        return responses[0] if single else responses

    def batch_infer(self, *args: Any, **kwargs: Any) -> Response | list[Response]:
        """Deprecated: the same as ``infer``."""
        warn_once("Pipeline.batch_infer is deprecated; use Pipeline.infer", DeprecationWarning)
        return self.infer(*args, **kwargs)

    def stream_infer(self, prompts: Any, gen_config: GenerationConfig | Sequence[GenerationConfig] | None = None,
                     do_preprocess: bool = True, adapter_name: str | None = None, stream_response: bool = True,
                     sessions: Session | Sequence[Session] | None = None,
                     **template_arguments: Any) -> Iterator[Response]:
        """Answers prompts piece by piece, all of them at once.

        Each item is a Response whose text and token_ids hold what is new; ``index`` says of which prompt. The last item
        of a prompt has finish_reason set. Dropping the iterator cancels what runs.

        Args:
            template_arguments: As ``infer`` takes them.
            sessions: Conversations that the prompts continue, one per prompt.
            stream_response: False yields each answer in one piece, as it is finished.

        Raises:
            BusyError: (a RuntimeError) a session runs a turn already, or is given twice; nothing has run then.
        """
        refuse_adapter(adapter_name)
        batch, _ = split_prompts(prompts)
        rendering = Rendering.of(do_preprocess, **template_arguments)
        group = _core.ResponseGroup(self._core)
        if sessions is not None:
            if not isinstance(sessions, (Session, list, tuple)):
                raise ArgumentTypeError(f"sessions is {type(sessions).__name__}; expected one Session per prompt")
            listed = [sessions] if isinstance(sessions, Session) else sessions
            turns = [_check_session(self, session, f"sessions[{i}]") for i, session in enumerate(listed)]
            if len(turns) != len(batch):
                raise InvalidArgumentError(f"sessions has {len(turns)} entries for {len(batch)} prompts")
            configs = resolve_configs(gen_config, len(batch))
            try:
                for prompt, config, session in zip(batch, configs, turns, strict=True):
                    self._start_turn(group, prompt, config, session, rendering)
            except BaseException:
                _drop(group, turns)
                raise
        else:
            turns = []
            self._start(group, batch, resolve_configs(gen_config, len(batch)), rendering)
        return self._pieces(group, batch, turns, stream_response)

    def preview(self, prompts: Any, do_preprocess: bool = True,
                chat_template_config: ChatTemplateConfig | None = None,
                **template_arguments: Any) -> PromptPreview | list[PromptPreview]:
        """What ``infer`` would send to the model for the same arguments: the text and the token ids of each prompt.

        Returns:
            One PromptPreview for a single prompt, otherwise a list in the order of the prompts.
        """
        batch, single = split_prompts(prompts)
        rendering = Rendering.of(do_preprocess, **template_arguments)
        template = self._template_for(chat_template_config)
        previews = [self._preview(prompt, rendering, template) for prompt in batch]
        return previews[0] if single else previews

    # ---- conversations

    def session(self, gen_config: GenerationConfig | None = None) -> Session:
        """A new conversation; ``gen_config`` is used when it is called as a function."""
        return Session(self, self._core.new_session(), gen_config)

    def chat(self, prompt: str, session: Session | None = None, gen_config: GenerationConfig | None = None,
             stream_response: bool = False, adapter_name: str | None = None,
             do_preprocess: bool = True, **template_arguments: Any) -> Session | Iterator[Response]:
        """One turn of a conversation.

        Args:
            prompt: What the user says.
            session: The conversation to continue; None: a new one.
            stream_response: True returns an iterator of pieces instead of the session, which is updated once the
                iterator is used up.
            template_arguments: As ``infer`` takes them.

        Returns:
            The session; the answer is ``session.response``.

        Raises:
            BusyError: (a RuntimeError) the session runs a turn already.
        """
        refuse_adapter(adapter_name)
        if not isinstance(prompt, str):
            split_prompts(prompt)  # refuses what is no prompt at all
            raise ArgumentTypeError("chat takes the text of one turn; the session keeps the conversation")
        session = _check_session(self, session, "session") if session is not None else self.session()
        group = _core.ResponseGroup(self._core)
        self._start_turn(group, prompt, resolve_configs(gen_config, 1)[0], session,
                         Rendering.of(do_preprocess, **template_arguments))
        pieces = self._pieces(group, [prompt], [session], stream_response)
        if stream_response:
            return pieces
        for _ in pieces:
            pass
        return session

    # ---- scores

    def get_ppl(self, input_ids: Sequence[int] | Sequence[Sequence[int]]) -> list[float]:
        """Mean negative log-likelihood per token, in nats (not exponentiated).

        Args:
            input_ids: Token ids, or a list of such lists; each needs at least two.
        """
        return score(self._core, input_ids)

    def get_reward_score(self, input_ids: Sequence[int] | Sequence[Sequence[int]]) -> list[float]:
        """What a reward model says of each list of token ids, after its last one.

        Args:
            input_ids: Token ids, or a list of such lists; each needs at least one.

        Raises:
            InvalidArgumentError: (a ValueError) the model is no reward model.
        """
        if not self._core.gives_score:
            raise InvalidArgumentError("get_reward_score needs a reward model (InternLM2ForRewardModel, "
                                       f"Qwen2ForRewardModel); this is {self._core.architecture}, which gives no scores")
        return _core.get_reward_score(self._core, check_id_lists(input_ids, "get_reward_score: input_ids"))

    def get_schedule_metrics(self) -> ScheduleMetrics:
        """Sequences, blocks and steps of the engine, now, and what speculative decoding has brought."""
        return schedule_metrics(self._core.stats())

    # ---- the end

    def close(self) -> None:
        """Cancels what runs and frees the engine and the weights. A second call does nothing."""
        self._core.close()
        self._sessions.clear()
        _open_pipelines.discard(self)

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # ---- inside

    def _template_for(self, config: ChatTemplateConfig | None) -> Any:
        """What renders in Python; None: the native side does."""
        if config is None:
            return self._template
        check_template_config(config)
        return config.chat_template

    def _native_prompt(self, prompt: Any, rendering: Rendering, template: Any) -> Any:
        """``prompt`` as the native side takes it: ids when a template written in Python has rendered it."""
        self._log_prompt(prompt)
        if template is None or (isinstance(prompt, str) and not rendering.do_preprocess):
            return prompt
        return self._encode_rendered(rendering.apply(template, prompt))

    def _preview(self, prompt: Any, rendering: Rendering, template: Any) -> PromptPreview:
        if template is None or (isinstance(prompt, str) and not rendering.do_preprocess):
            return PromptPreview(*self._core.preview(prompt, rendering.native()))
        text = rendering.apply(template, prompt)
        return PromptPreview(text, self._encode_rendered(text))

    def _encode_rendered(self, text: str) -> list[int]:
        """Exactly one BOS, if the tokenizer adds one at all."""
        tokenizer = self._core.tokenizer
        if tokenizer is None:
            raise UnsupportedError("the checkpoint has no tokenizer, so prompts cannot be text; use lmdeploy.turbomind")
        ids = tokenizer.encode(text, False, True)
        bos = tokenizer.bos_id
        if bos is None or ids[:1] == [bos] or tokenizer.encode("a")[:1] != [bos]:
            return ids
        return [bos, *ids]

    def _log_prompt(self, prompt: Any) -> None:
        if logger.isEnabledFor(20):  # logging.INFO
            logger.info("prompt=%.*r", self._max_log_len or len(repr(prompt)), prompt)

    def _start(self, group: Any, batch: list[Any], configs: list[GenerationConfig], rendering: Rendering) -> None:
        natives = native_configs(configs, _stop_words(self._template))
        for prompt, native in zip(batch, natives, strict=True):
            group.submit(self._native_prompt(prompt, rendering, self._template), native, rendering.native())

    def _start_turn(self, group: Any, prompt: Any, config: GenerationConfig, session: Session,
                    rendering: Rendering) -> None:
        if not isinstance(prompt, str):
            raise ArgumentTypeError("a turn of a session is text; the session keeps the conversation")
        check_text(prompt, "the prompt")
        native, = native_configs([config], _stop_words(self._template))
        session._claim(group)
        try:
            self._submit_turn(group, prompt, native, session, rendering)
        except BaseException:
            session._release(group)
            raise

    def _submit_turn(self, group: Any, prompt: str, native: _core.GenerationConfig, session: Session,
                     rendering: Rendering) -> None:
        if self._template is None or not rendering.do_preprocess:
            group.chat(session._native, prompt, native, rendering.native())
            return
        # A template written in Python renders the whole conversation; the engine keeps nothing in between.
        messages = [{"role": role, "content": content} for turn in session.history
                    for role, content in zip(("user", "assistant"), turn, strict=True)]
        conversation = [*messages, {"role": "user", "content": prompt}] if messages else prompt
        group.submit(self._native_prompt(conversation, rendering, self._template), native, rendering.native())

    def _pieces(self, group: Any, batch: list[Any], sessions: list[Session],
                stream_response: bool) -> Iterator[Response]:
        whole: dict[int, Response] = {}
        try:
            for idx, native in read(group):
                piece = response_from_native(native, self._core)
                piece.index = piece.session_id = idx
                if sessions:
                    piece.session_id = sessions[idx].session_id
                answer = whole[idx].extend(piece) if idx in whole else whole.setdefault(idx, first_piece(piece))
                if piece.finish_reason is not None and sessions:
                    end_turn(sessions[idx], group, batch[idx], answer)
                if stream_response:
                    yield piece
                elif piece.finish_reason is not None:
                    yield answer
        finally:
            _drop(group, sessions)

    def _forget_session(self, session: Session) -> None:
        self._core.end_session(session._native)
        session._native.forget()

    def _group_choices(self, results: list[_core.Response], configs: list[GenerationConfig]) -> list[Response]:
        """One Response per prompt, with its other choices in ``choices``."""
        responses: list[Response] = []
        remaining = iter(results)
        for config in configs:
            choices = [response_from_native(next(remaining), self._core) for _ in range(config.n)]
            if len(choices) > 1:
                choices[0].choices = choices
            responses.append(choices[0])
        return responses


def _drop(group: Any, sessions: Sequence[Session]) -> None:
    """What still runs in ``group`` is cancelled, and its sessions are free for their next turn."""
    group.cancel_all()
    for session in sessions:
        session._release(group)


def _check_session(pipe: Pipeline, session: Any, where: str) -> Session:
    if not isinstance(session, Session):
        raise ArgumentTypeError(f"{where} is {type(session).__name__}; expected a Session, as pipe.session() and "
                                "pipe.chat() give")
    if session._pipe is not pipe:
        raise InvalidArgumentError(f"{where} belongs to another pipeline")
    return session


def _stop_words(template: Any) -> Sequence[str]:
    return getattr(template, "stop_words", None) or ()


def score(core: _core.Pipeline, input_ids: Any) -> list[float]:
    """Mean negative log-likelihoods of one id list or several. Raises InvalidArgumentError naming the list."""
    lists = check_id_lists(input_ids, "get_ppl: input_ids")
    for i, ids in enumerate(lists):
        if len(ids) < 2:
            raise InvalidArgumentError(f"get_ppl: input_ids[{i}] has {len(ids)} ids; expected at least 2")
    return _core.get_ppl(core, lists)
