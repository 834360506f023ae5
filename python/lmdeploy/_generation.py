"""GenerationConfig and its older engine form: how a prompt is answered."""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._config import Config
from ._inputs import show
from ._native import native_generation_config
from .errors import ArgumentTypeError, ConfigValueError, InvalidArgumentError

if TYPE_CHECKING:
    from .tokenizer import Tokenizer

_OUTPUTS = (None, "all", "generation")
_RANGES = {"n": (1, 16384), "top_p": (0, 1), "min_p": (0, 1), "temperature": (0, 2), "presence_penalty": (-2, 2),
           "frequency_penalty": (-2, 2)}


def _as_list(words: Any) -> Any:
    return [words] if isinstance(words, str) else words


@dataclass
class GenerationConfig(Config):
    """How a prompt is answered. Answers are greedy (always the most probable token) unless ``do_sample`` is set.

    Args:
        n: Answers per prompt, at most 16384; all of them are in ``Response.choices``.
        max_new_tokens: Most tokens to generate; None, or more than fits: as many as ``session_len`` leaves room for;
            0: the prompt is only read, for its scores, logits or hidden states.
        do_sample: Draw tokens; then ``top_p``, ``top_k``, ``min_p`` and ``temperature`` apply.
        top_p: In [0, 1]: keep the smallest set of tokens whose probabilities sum to it.
        top_k: Keep that many tokens; 0 or -1: no limit.
        min_p: In [0, 1]: drop tokens below this share of the best token's probability.
        temperature: In [0, 2]; 0 is greedy.
        repetition_penalty: Above 0; divides (multiplies) positive (negative) logits of tokens seen in prompt or answer.
        ignore_eos: Only the length ends the answer: neither end tokens nor stop words.
        random_seed: Same seed, same draws, whatever else runs; None: a fresh one per prompt.
        stop_words: Texts that end the answer, of any length; added to the chat template's. Not part of the answer.
        bad_words: Texts whose token ids never come in a row. That is the spelling the tokenizer gives the text, alone
            and after a space; the same letters cut into other tokens may still come (docs/sampling.md).
        stop_token_ids: Token ids that end the answer.
        bad_token_ids: Token ids that are never generated.
        min_new_tokens: Nothing but ``max_new_tokens`` stops the answer before that many tokens.
        skip_special_tokens: Leave control tokens out of ``Response.text``.
        logprobs: Log probabilities of that many tokens at each position, from the full distribution; None: none.
        logits_processors: Callables (input_ids, scores) -> scores that change the logits before penalties and draw:
            an int64 array of all tokens so far, and a float32 array [vocab_size] that may be changed in place; a numpy
            array or tensor comes back. Called for this prompt alone, on the engine's thread, while everything else
            waits; they cannot use the pipeline. An exception ends this prompt, with its words in ``error_message``.
        output_logits: ``"all"`` (prompt and answer) or ``"generation"``: raw logits in ``Response.logits``.
        output_last_hidden_state: The same for what the final norm gives, in ``Response.last_hidden_state``.
        return_ppl: The prompt's mean negative log-likelihood, as ``Pipeline.get_ppl`` gives it, in ``Response.ppl``.
        include_stop_str_in_output: Keep the stop word or stop token at the end of the answer.
        repetition_ngram_size, repetition_ngram_threshold: Stop when an n-gram of that size repeats that often; off
            when either is 0 or less.
        presence_penalty, frequency_penalty: In [-2, 2]; subtracted from the logits of generated tokens, once and per
            occurrence.
        logit_bias: {token id: value added to its logit}.
        response_format: What the answer must be: ``{"type": "json_object"}``, ``{"type": "json_schema", "json_schema":
            {"name": ..., "schema": {...}}}``, ``{"type": "regex_schema", "regex_schema": "..."}``, ``{"type": "choice",
            "choice": ["...", ...]}`` or ``{"type": "text"}``; see docs/structured_output.md.

    Raises:
        ConfigValueError: (an AssertionError and ValueError) a value outside its range.
        ArgumentTypeError: (a TypeError and ValueError) a wrong type or an unknown name.
    """

    _WIDE = ("n", "random_seed", "migration_request")

    n: int = 1
    max_new_tokens: int | None = 512
    do_sample: bool = False
    top_p: float = 1.0
    top_k: int = 50
    min_p: float = 0.0
    temperature: float = 0.8
    repetition_penalty: float = 1.0
    ignore_eos: bool = False
    random_seed: int | None = None
    stop_words: list[str] | None = None
    bad_words: list[str] | None = None
    stop_token_ids: list[int] | None = None
    bad_token_ids: list[int] | None = None
    min_new_tokens: int | None = None
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    logprobs: int | None = None
    response_format: dict[str, Any] | None = None
    logits_processors: list[Callable[..., Any]] | None = None
    output_logits: str | None = None
    output_last_hidden_state: str | None = None
    include_stop_str_in_output: bool = False
    with_cache: bool = False
    preserve_cache: bool = False
    migration_request: Any = None
    return_routed_experts: bool = False
    repetition_ngram_size: int = 0
    repetition_ngram_threshold: int = 0
    return_ppl: bool = False
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] | None = None

    def _checked(self, name: str, value: Any) -> Any:
        return super()._checked(name, _as_list(value) if name in ("stop_words", "bad_words") else value)

    def _validate(self) -> None:
        for name in ("output_logits", "output_last_hidden_state"):
            if getattr(self, name) not in _OUTPUTS:
                raise ConfigValueError(f"gen_config.{name} is {getattr(self, name)!r}; expected None, 'all' or "
                                       "'generation'")
        for name, (low, high) in _RANGES.items():
            if not low <= getattr(self, name) <= high:
                raise ConfigValueError(f"gen_config.{name} is {show(getattr(self, name))}; expected {low} to {high}")
        if self.top_k < -1:
            raise ConfigValueError(f"gen_config.top_k is {self.top_k}; expected 1 or more, or no limit: 0 or -1")
        if not 0 < self.repetition_penalty < math.inf:
            raise ConfigValueError(f"gen_config.repetition_penalty is {self.repetition_penalty}; expected a number "
                                   "above 0 (1: off)")
        for i, processor in enumerate(self.logits_processors or ()):
            if not callable(processor):
                raise ArgumentTypeError(f"gen_config.logits_processors[{i}] is {show(processor)}; expected a callable "
                                        "(input_ids, scores) -> scores")
        try:
            native_generation_config(self).validate()
        except InvalidArgumentError as error:
            raise ConfigValueError(str(error)) from None

    def convert_stop_bad_words_to_ids(self, tokenizer: Tokenizer) -> None:
        """Adds the ids of single-token stop and bad words to ``stop_token_ids`` and ``bad_token_ids``.

        Not needed here, where words are matched in the text; kept for code that passes ids on.
        """
        for words, ids in (("stop_words", "stop_token_ids"), ("bad_words", "bad_token_ids")):
            found = {*(getattr(self, ids) or ()), *_word_ids(getattr(self, words), tokenizer)}
            setattr(self, ids, sorted(found) or None)


def _word_ids(words: list[str] | None, tokenizer: Tokenizer) -> list[int]:
    return [token_id for word in words or () for token_id in tokenizer.indexes_containing_token(word)]


@dataclass
class EngineGenerationConfig(Config):
    """The older, id-based form for ``TurboMind`` instances: stop and bad words are token ids, and tokens are drawn
    unless ``top_k`` is 1 (the default)."""

    _WIDE = ("n", "random_seed")

    n: int = 1
    max_new_tokens: int | None = 512
    top_p: float = 1.0
    top_k: int = 1
    temperature: float = 0.8
    repetition_penalty: float = 1.0
    ignore_eos: bool = False
    random_seed: int | None = None
    stop_words: list[int] | None = None
    bad_words: list[int] | None = None
    min_new_tokens: int | None = None
    skip_special_tokens: bool = True
    logprobs: int | None = None

    @staticmethod
    def From(gen_config: GenerationConfig, tokenizer: Tokenizer) -> EngineGenerationConfig:  # noqa: N802
        """The engine form of a GenerationConfig; words that are no single token are left out."""
        names = {field.name for field in dataclasses.fields(EngineGenerationConfig)} - {"stop_words", "bad_words"}
        values = {name: getattr(gen_config, name) for name in names}
        if not gen_config.do_sample:
            values["top_k"] = 1
        stop = [*_word_ids(gen_config.stop_words, tokenizer), *(gen_config.stop_token_ids or ())]
        bad = [*_word_ids(gen_config.bad_words, tokenizer), *(gen_config.bad_token_ids or ())]
        return EngineGenerationConfig(**values, stop_words=stop or None, bad_words=bad or None)

    def to_generation_config(self) -> GenerationConfig:
        """The same in today's form."""
        names = {field.name for field in dataclasses.fields(self)} - {"stop_words", "bad_words"}
        values = {name: getattr(self, name) for name in names}
        return GenerationConfig(**values, do_sample=self.top_k != 1, stop_token_ids=self.stop_words,
                                bad_token_ids=self.bad_words)

    def _validate(self) -> None:
        self.to_generation_config()
