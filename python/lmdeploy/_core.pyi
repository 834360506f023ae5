# Types of the native module lmdeploy._core. Made from the built module; make it again when the bindings change:
#   python -m nanobind.stubgen -m lmdeploy._core -o python/lmdeploy/_core.pyi
"""Native core of LMDeploy; use the names of the package lmdeploy instead."""

import enum
import os
import pathlib
from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray

__version__: str


class ChatTemplateConfig:
    """A catalogue template and the fields that replace its own."""

    def __init__(self) -> None: ...

    @property
    def model_name(self) -> str: ...

    @model_name.setter
    def model_name(self, arg: str, /) -> None: ...

    @property
    def system(self) -> str | None: ...

    @system.setter
    def system(self, arg: str | None) -> None: ...

    @property
    def meta_instruction(self) -> str | None: ...

    @meta_instruction.setter
    def meta_instruction(self, arg: str | None) -> None: ...

    @property
    def eosys(self) -> str | None: ...

    @eosys.setter
    def eosys(self, arg: str | None) -> None: ...

    @property
    def user(self) -> str | None: ...

    @user.setter
    def user(self, arg: str | None) -> None: ...

    @property
    def eoh(self) -> str | None: ...

    @eoh.setter
    def eoh(self, arg: str | None) -> None: ...

    @property
    def assistant(self) -> str | None: ...

    @assistant.setter
    def assistant(self, arg: str | None) -> None: ...

    @property
    def eoa(self) -> str | None: ...

    @eoa.setter
    def eoa(self, arg: str | None) -> None: ...

    @property
    def tool(self) -> str | None: ...

    @tool.setter
    def tool(self, arg: str | None) -> None: ...

    @property
    def eotool(self) -> str | None: ...

    @eotool.setter
    def eotool(self, arg: str | None) -> None: ...

    @property
    def separator(self) -> str | None: ...

    @separator.setter
    def separator(self, arg: str | None) -> None: ...

    @property
    def capability(self) -> str | None: ...

    @capability.setter
    def capability(self, arg: str | None) -> None: ...

    @property
    def stop_words(self) -> list[str] | None: ...

    @stop_words.setter
    def stop_words(self, arg: Sequence[str] | None) -> None: ...

class PipelineConfig:
    """What a pipeline is opened with."""

    def __init__(self) -> None: ...

    @property
    def model_path(self) -> pathlib.Path: ...

    @model_path.setter
    def model_path(self, arg: str | os.PathLike[str], /) -> None: ...

    @property
    def model_format(self) -> str: ...

    @model_format.setter
    def model_format(self, arg: str, /) -> None: ...

    @property
    def local_path(self) -> pathlib.Path: ...

    @local_path.setter
    def local_path(self, arg: str | os.PathLike[str], /) -> None: ...

    @property
    def dtype(self) -> str: ...

    @dtype.setter
    def dtype(self, arg: str, /) -> None: ...

    @property
    def device_type(self) -> str: ...

    @device_type.setter
    def device_type(self, arg: str, /) -> None: ...

    @property
    def session_len(self) -> int | None: ...

    @session_len.setter
    def session_len(self, arg: int | None) -> None: ...

    @property
    def max_batch_size(self) -> int | None: ...

    @max_batch_size.setter
    def max_batch_size(self, arg: int | None) -> None: ...

    @property
    def cache_max_entry_count(self) -> float | None: ...

    @cache_max_entry_count.setter
    def cache_max_entry_count(self, arg: float | None) -> None: ...

    @property
    def cache_block_seq_len(self) -> int | None: ...

    @cache_block_seq_len.setter
    def cache_block_seq_len(self, arg: int | None) -> None: ...

    @property
    def enable_prefix_caching(self) -> bool | None: ...

    @enable_prefix_caching.setter
    def enable_prefix_caching(self, arg: bool | None) -> None: ...

    @property
    def quant_policy(self) -> int | None: ...

    @quant_policy.setter
    def quant_policy(self, arg: int | None) -> None: ...

    @property
    def rope_scaling_factor(self) -> float | None: ...

    @rope_scaling_factor.setter
    def rope_scaling_factor(self, arg: float | None) -> None: ...

    @property
    def use_logn_attn(self) -> bool | None: ...

    @use_logn_attn.setter
    def use_logn_attn(self, arg: bool | None) -> None: ...

    @property
    def max_prefill_token_num(self) -> int | None: ...

    @max_prefill_token_num.setter
    def max_prefill_token_num(self, arg: int | None) -> None: ...

    @property
    def num_tokens_per_iter(self) -> int | None: ...

    @num_tokens_per_iter.setter
    def num_tokens_per_iter(self, arg: int | None) -> None: ...

    @property
    def max_prefill_iters(self) -> int | None: ...

    @max_prefill_iters.setter
    def max_prefill_iters(self, arg: int | None) -> None: ...

    @property
    def tp(self) -> int: ...

    @tp.setter
    def tp(self, arg: int, /) -> None: ...

    @property
    def communicator(self) -> str: ...

    @communicator.setter
    def communicator(self, arg: str, /) -> None: ...

    @property
    def num_threads(self) -> int: ...

    @num_threads.setter
    def num_threads(self, arg: int, /) -> None: ...

    @property
    def deterministic(self) -> bool: ...

    @deterministic.setter
    def deterministic(self, arg: bool, /) -> None: ...

    @property
    def rounded_activations(self) -> bool | None: ...

    @rounded_activations.setter
    def rounded_activations(self, arg: bool | None) -> None: ...

    @property
    def chat_template(self) -> ChatTemplateConfig | None: ...

    @chat_template.setter
    def chat_template(self, arg: ChatTemplateConfig | None) -> None: ...

    def set_speculative(self, method: str, model: str | os.PathLike[str], local_path: str | os.PathLike[str], num_speculative_tokens: int) -> None: ...

    def set_hf_overrides(self, arg: dict, /) -> None: ...

class OutputRows(enum.Enum):
    NONE = 0

    GENERATION = 1

    ALL = 2

class GenerationConfig:
    """How a prompt is answered."""

    def __init__(self) -> None: ...

    @property
    def n(self) -> int: ...

    @n.setter
    def n(self, arg: int, /) -> None: ...

    @property
    def max_new_tokens(self) -> int | None: ...

    @max_new_tokens.setter
    def max_new_tokens(self, arg: int | None) -> None: ...

    @property
    def do_sample(self) -> bool: ...

    @do_sample.setter
    def do_sample(self, arg: bool, /) -> None: ...

    @property
    def top_p(self) -> float: ...

    @top_p.setter
    def top_p(self, arg: float, /) -> None: ...

    @property
    def min_p(self) -> float: ...

    @min_p.setter
    def min_p(self, arg: float, /) -> None: ...

    @property
    def temperature(self) -> float: ...

    @temperature.setter
    def temperature(self, arg: float, /) -> None: ...

    @property
    def top_k(self) -> int: ...

    @top_k.setter
    def top_k(self, arg: int, /) -> None: ...

    @property
    def repetition_penalty(self) -> float: ...

    @repetition_penalty.setter
    def repetition_penalty(self, arg: float, /) -> None: ...

    @property
    def presence_penalty(self) -> float: ...

    @presence_penalty.setter
    def presence_penalty(self, arg: float, /) -> None: ...

    @property
    def frequency_penalty(self) -> float: ...

    @frequency_penalty.setter
    def frequency_penalty(self, arg: float, /) -> None: ...

    @property
    def ignore_eos(self) -> bool: ...

    @ignore_eos.setter
    def ignore_eos(self, arg: bool, /) -> None: ...

    @property
    def random_seed(self) -> int | None: ...

    @random_seed.setter
    def random_seed(self, arg: int | None) -> None: ...

    @property
    def stop_words(self) -> list[str]: ...

    @stop_words.setter
    def stop_words(self, arg: Sequence[str], /) -> None: ...

    @property
    def bad_words(self) -> list[str]: ...

    @bad_words.setter
    def bad_words(self, arg: Sequence[str], /) -> None: ...

    @property
    def stop_token_ids(self) -> list[int]: ...

    @stop_token_ids.setter
    def stop_token_ids(self, arg: Sequence[int], /) -> None: ...

    @property
    def bad_token_ids(self) -> list[int]: ...

    @bad_token_ids.setter
    def bad_token_ids(self, arg: Sequence[int], /) -> None: ...

    @property
    def min_new_tokens(self) -> int: ...

    @min_new_tokens.setter
    def min_new_tokens(self, arg: int, /) -> None: ...

    @property
    def skip_special_tokens(self) -> bool: ...

    @skip_special_tokens.setter
    def skip_special_tokens(self, arg: bool, /) -> None: ...

    @property
    def spaces_between_special_tokens(self) -> bool: ...

    @spaces_between_special_tokens.setter
    def spaces_between_special_tokens(self, arg: bool, /) -> None: ...

    @property
    def include_stop_str_in_output(self) -> bool: ...

    @include_stop_str_in_output.setter
    def include_stop_str_in_output(self, arg: bool, /) -> None: ...

    @property
    def logprobs(self) -> int | None: ...

    @logprobs.setter
    def logprobs(self, arg: int | None) -> None: ...

    @property
    def output_logits(self) -> OutputRows: ...

    @output_logits.setter
    def output_logits(self, arg: OutputRows, /) -> None: ...

    @property
    def output_last_hidden_state(self) -> OutputRows: ...

    @output_last_hidden_state.setter
    def output_last_hidden_state(self, arg: OutputRows, /) -> None: ...

    @property
    def return_ppl(self) -> bool: ...

    @return_ppl.setter
    def return_ppl(self, arg: bool, /) -> None: ...

    def set_logits_processors(self, callables: list) -> None: ...

    @property
    def repetition_ngram_size(self) -> int: ...

    @repetition_ngram_size.setter
    def repetition_ngram_size(self, arg: int, /) -> None: ...

    @property
    def repetition_ngram_threshold(self) -> int: ...

    @repetition_ngram_threshold.setter
    def repetition_ngram_threshold(self, arg: int, /) -> None: ...

    @property
    def logit_bias(self) -> list[tuple[int, float]]: ...

    @logit_bias.setter
    def logit_bias(self, arg: Sequence[tuple[int, float]], /) -> None: ...

    def set_response_format(self, response_format: dict) -> None: ...

    def validate(self) -> None: ...

class RunOptions:
    """How a prompt becomes text."""

    def __init__(self) -> None: ...

    @property
    def do_preprocess(self) -> bool: ...

    @do_preprocess.setter
    def do_preprocess(self, arg: bool, /) -> None: ...

    @property
    def add_generation_prompt(self) -> bool: ...

    @add_generation_prompt.setter
    def add_generation_prompt(self, arg: bool, /) -> None: ...

    @property
    def continue_final_message(self) -> bool: ...

    @continue_final_message.setter
    def continue_final_message(self, arg: bool, /) -> None: ...

    def set_template_extra(self, arg: dict, /) -> None: ...

    def set_tools(self, tools: object | None) -> None: ...

class Tokenizer:
    """Text to token ids and back; immutable and thread-safe."""

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Tokenizer:
        """A model folder, a tokenizer.json, .gguf, .model or .tiktoken file."""

    def encode(self, text: str, add_special_tokens: bool = True, parse_special: bool | None = None) -> list[int]: ...

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str: ...

    def decode_pieces(self, ids: Sequence[int], skip_special_tokens: bool = True) -> list[str]: ...

    def token_text(self, id: int) -> str:
        """The token as the vocabulary spells it; "" for an unused id."""

    def token_bytes(self, id: int) -> bytes:
        """
        The bytes it stands for in running text; empty for special tokens and unused ids.
        """

    def token_id(self, text: str) -> int | None:
        """The id whose spelling is exactly `text`, or None."""

    def is_special(self, id: int) -> bool: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def bos_id(self) -> int | None: ...

    @property
    def eos_id(self) -> int | None: ...

    @property
    def end_ids(self) -> list[int]: ...

    @property
    def bos_token(self) -> str: ...

    @property
    def eos_token(self) -> str: ...

    @property
    def chat_template(self) -> str: ...

class Detokenizer:
    """Ids that arrive one after another to text, never half a character."""

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True) -> None: ...

    def push(self, ids: Sequence[int]) -> str: ...

    def finish(self) -> str: ...

class ChatTemplate:
    """Messages to prompt text; immutable and thread-safe."""

    def render(self, messages: object, add_generation_prompt: bool = True, sequence_start: bool = True, tools: object | None = None, extra: dict = {}, continue_final_message: bool = False) -> str:
        """A str is one user message; a list holds role/content dicts."""

    @property
    def name(self) -> str: ...

    @property
    def stop_words(self) -> list[str]: ...

def make_catalogue_template(config: ChatTemplateConfig) -> ChatTemplate: ...

def make_jinja_template(source: str, bos_token: str = '', eos_token: str = '') -> ChatTemplate: ...

def chat_template_names() -> list[str]:
    """Names of the built-in templates, sorted."""

class Vocabulary:
    """The bytes of a tokenizer's tokens; immutable."""

    @staticmethod
    def of(tokenizer: Tokenizer) -> Vocabulary: ...

    @staticmethod
    def of_bytes(tokens: list) -> Vocabulary:
        """`tokens[id]`: the bytes of token id; empty for ids without text."""

    def __len__(self) -> int: ...


class Matcher:
    """How far one answer has got in a grammar."""

    def copy(self) -> Matcher: ...

    def fill_mask(self, mask: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu')]) -> None:
        """
        Sets bit id % 32 of mask[id // 32] for the tokens that may come, clears all others.
        """

    def accept(self, token: int) -> bool:
        """False, and nothing changes: it may not come."""

    def accept_bytes(self, bytes: bytes) -> bool: ...

    def can_stop(self) -> bool:
        """What has come is whole."""

    def is_complete(self) -> bool:
        """It is, and nothing may follow."""

    def forced_bytes(self, most: int = 256) -> bytes:
        """What must come next."""


class Grammar:
    """A response_format over a vocabulary; thread-safe."""

    @staticmethod
    def compile(response_format: object, vocabulary: Vocabulary) -> Grammar: ...

    @property
    def warnings(self) -> list[str]: ...

    def matcher(self) -> Matcher: ...


class LocalTime:
    """What strftime_now shows."""

    def __init__(self) -> None: ...

    @property
    def date(self) -> tuple[int, int, int, int, int, int, int, int]:
        """
        (year, month, day, hour, minute, second, weekday, day of the year), as timetuple() counts.
        """

    @date.setter
    def date(self, arg: Sequence[int], /) -> None: ...

    @property
    def microsecond(self) -> int: ...

    @microsecond.setter
    def microsecond(self, arg: int, /) -> None: ...

    @property
    def offset(self) -> str:
        """+hhmm for %z; "": unknown."""

    @offset.setter
    def offset(self, arg: str, /) -> None: ...

    @property
    def zone(self) -> str:
        """The zone's name for %Z; "": unknown."""

    @zone.setter
    def zone(self, arg: str, /) -> None: ...

def render_template(source: str, variables: dict, now: LocalTime | None = None) -> str:
    """Renders a Jinja template; `now`: the current time by default."""

class Response:
    """A piece of an answer, or all of it."""

    @property
    def text(self) -> str: ...

    @property
    def generate_token_len(self) -> int: ...

    @property
    def input_token_len(self) -> int: ...

    @property
    def finish_reason(self) -> str | None: ...

    @property
    def token_ids(self) -> list[int]: ...

    @property
    def logprobs(self) -> list[dict[int, float]] | None: ...

    def take_logits(self, vocab_size: int) -> numpy.ndarray | None:
        """
        float32 [rows, vocab_size], moved out without a copy; None when there are none.
        """

    def take_hidden_states(self, hidden_size: int) -> numpy.ndarray | None:
        """
        float32 [rows, hidden_size], moved out without a copy; None when there are none.
        """

    @property
    def ppl(self) -> float | None: ...

    @property
    def index(self) -> int: ...

    @property
    def cached_tokens(self) -> int: ...

    @property
    def error_code(self) -> str | None: ...

    @property
    def error_message(self) -> str: ...

class RequestOutput:
    """What became known of a request since the last output."""

    @property
    def token_ids(self) -> list[int]: ...

    @property
    def logprobs(self) -> list[dict[int, float]] | None: ...

    def take_logits(self, vocab_size: int) -> numpy.ndarray | None:
        """
        float32 [rows, vocab_size], moved out without a copy; None when there are none.
        """

    def take_hidden_states(self, hidden_size: int) -> numpy.ndarray | None:
        """
        float32 [rows, hidden_size], moved out without a copy; None when there are none.
        """

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def cached_tokens(self) -> int: ...

    @property
    def generated_tokens(self) -> int: ...

    @property
    def session_tokens(self) -> int: ...

    @property
    def prompt_nll(self) -> float: ...

    @property
    def finish_reason(self) -> str | None: ...

    @property
    def error_code(self) -> str: ...

    @property
    def error_message(self) -> str: ...

class SamplingParams:
    """How the next token is chosen."""

    def __init__(self) -> None: ...

    @property
    def temperature(self) -> float: ...

    @temperature.setter
    def temperature(self, arg: float, /) -> None: ...

    @property
    def top_k(self) -> int: ...

    @top_k.setter
    def top_k(self, arg: int, /) -> None: ...

    @property
    def top_p(self) -> float: ...

    @top_p.setter
    def top_p(self, arg: float, /) -> None: ...

    @property
    def min_p(self) -> float: ...

    @min_p.setter
    def min_p(self, arg: float, /) -> None: ...

    @property
    def repetition_penalty(self) -> float: ...

    @repetition_penalty.setter
    def repetition_penalty(self, arg: float, /) -> None: ...

    @property
    def presence_penalty(self) -> float: ...

    @presence_penalty.setter
    def presence_penalty(self, arg: float, /) -> None: ...

    @property
    def frequency_penalty(self) -> float: ...

    @frequency_penalty.setter
    def frequency_penalty(self, arg: float, /) -> None: ...

    @property
    def logit_bias(self) -> list[tuple[int, float]]: ...

    @logit_bias.setter
    def logit_bias(self, arg: Sequence[tuple[int, float]], /) -> None: ...

    @property
    def bad_words(self) -> list[list[int]]: ...

    @bad_words.setter
    def bad_words(self, arg: Sequence[Sequence[int]], /) -> None: ...

    @property
    def seed(self) -> int: ...

    @seed.setter
    def seed(self, arg: int, /) -> None: ...

class Request:
    """Token ids in; what to do with them."""

    def __init__(self) -> None: ...

    @property
    def session_id(self) -> int: ...

    @session_id.setter
    def session_id(self, arg: int, /) -> None: ...

    def set_input_ids(self, ids: object) -> None: ...

    @property
    def sequence_start(self) -> bool: ...

    @sequence_start.setter
    def sequence_start(self, arg: bool, /) -> None: ...

    @property
    def sequence_end(self) -> bool: ...

    @sequence_end.setter
    def sequence_end(self, arg: bool, /) -> None: ...

    @property
    def step(self) -> int: ...

    @step.setter
    def step(self, arg: int, /) -> None: ...

    @property
    def sampling(self) -> SamplingParams: ...

    @sampling.setter
    def sampling(self, arg: SamplingParams, /) -> None: ...

    @property
    def max_new_tokens(self) -> int: ...

    @max_new_tokens.setter
    def max_new_tokens(self, arg: int, /) -> None: ...

    @property
    def min_new_tokens(self) -> int: ...

    @min_new_tokens.setter
    def min_new_tokens(self, arg: int, /) -> None: ...

    @property
    def stop_ids(self) -> list[int]: ...

    @stop_ids.setter
    def stop_ids(self, arg: Sequence[int], /) -> None: ...

    @property
    def include_stop_id(self) -> bool: ...

    @include_stop_id.setter
    def include_stop_id(self, arg: bool, /) -> None: ...

    @property
    def repetition_ngram_size(self) -> int: ...

    @repetition_ngram_size.setter
    def repetition_ngram_size(self, arg: int, /) -> None: ...

    @property
    def repetition_ngram_threshold(self) -> int: ...

    @repetition_ngram_threshold.setter
    def repetition_ngram_threshold(self, arg: int, /) -> None: ...

    @property
    def num_logprobs(self) -> int: ...

    @num_logprobs.setter
    def num_logprobs(self, arg: int, /) -> None: ...

    @property
    def logits(self) -> OutputRows: ...

    @logits.setter
    def logits(self, arg: OutputRows, /) -> None: ...

    @property
    def hidden_states(self) -> OutputRows: ...

    @hidden_states.setter
    def hidden_states(self, arg: OutputRows, /) -> None: ...

    def set_logits_processors(self, callables: list) -> None: ...

    @property
    def score_prompt(self) -> bool: ...

    @score_prompt.setter
    def score_prompt(self, arg: bool, /) -> None: ...

class ChatSession:
    """A conversation whose keys and values stay in the engine."""

    @property
    def session_id(self) -> int: ...

    @property
    def step(self) -> int:
        """Tokens that the session holds."""

    def forget(self) -> None:
        """Begins anew under the same id; a turn that runs keeps the old state."""

class ResponseGroup:
    """Prompts that run together, read piece by piece."""

    def __init__(self, pipeline: Pipeline) -> None: ...

    def next(self, timeout: float | None = None) -> tuple[int, Response] | None:
        """
        (index of the stream, its next piece). None after `timeout` seconds or when all streams have ended. Ctrl-C cancels all of them.
        """

    def cancel(self, index: int) -> None: ...

    def cancel_all(self) -> None: ...

    def fileno(self) -> int:
        """A descriptor that is readable while next() has something."""

    @property
    def num_open(self) -> int: ...

    def submit(self, prompt: object, gen_config: GenerationConfig, options: RunOptions) -> int: ...

    def chat(self, session: ChatSession, prompt: object, gen_config: GenerationConfig, options: RunOptions) -> int: ...

class RequestGroup:
    """Engine requests that run together, read piece by piece."""

    def __init__(self, pipeline: Pipeline) -> None: ...

    def next(self, timeout: float | None = None) -> tuple[int, RequestOutput] | None:
        """
        (index of the stream, its next piece). None after `timeout` seconds or when all streams have ended. Ctrl-C cancels all of them.
        """

    def cancel(self, index: int) -> None: ...

    def cancel_all(self) -> None: ...

    def fileno(self) -> int:
        """A descriptor that is readable while next() has something."""

    @property
    def num_open(self) -> int: ...

    def submit(self, request: Request) -> int: ...

class EngineStats:
    """
    Counters and gauges of an engine; free + used + cached == total blocks.
    """

    @property
    def total_blocks(self) -> int: ...

    @property
    def free_blocks(self) -> int: ...

    @property
    def used_blocks(self) -> int: ...

    @property
    def cached_blocks(self) -> int: ...

    @property
    def running(self) -> int: ...

    @property
    def waiting(self) -> int: ...

    @property
    def sessions(self) -> int: ...

    @property
    def finished(self) -> int: ...

    @property
    def aborted(self) -> int: ...

    @property
    def failed(self) -> int: ...

    @property
    def preemptions(self) -> int: ...

    @property
    def steps(self) -> int: ...

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def generated_tokens(self) -> int: ...

    @property
    def prefix_queried_tokens(self) -> int: ...

    @property
    def prefix_hit_tokens(self) -> int: ...

    @property
    def num_drafts(self) -> int: ...

    @property
    def num_draft_tokens(self) -> int: ...

    @property
    def num_accepted_tokens(self) -> int: ...

    @property
    def num_accepted_tokens_per_pos(self) -> list[int]: ...

    @property
    def speculative_gain(self) -> float: ...

class Pipeline:
    """A loaded model; thread-safe."""

    @staticmethod
    def open(config: PipelineConfig, progress: object | None = None) -> Pipeline:
        """
        Loads the model; progress(done_bytes, total_bytes) is called now and then.
        """

    def infer(self, prompts: list, gen_configs: Sequence[GenerationConfig], options: RunOptions, poll: object | None = None) -> list[Response]:
        """Runs all prompts; poll(number done) is called now and then."""

    def render(self, prompt: object, options: RunOptions) -> str:
        """The prompt after the chat template."""

    def preview(self, prompt: object, options: RunOptions) -> tuple[str, list[int]]:
        """The prompt's text and its token ids."""

    def constrain(self, request: Request, gen_config: GenerationConfig) -> None:
        """Lets the request generate only what the config's response_format admits."""

    def new_session(self) -> ChatSession: ...

    def end_session(self, session: ChatSession) -> None: ...

    def end_session_id(self, session_id: int) -> None: ...

    def close(self) -> None: ...

    def stats(self) -> EngineStats: ...

    @property
    def tokenizer(self) -> Tokenizer | None:
        """None for a checkpoint without one."""

    @property
    def chat_template(self) -> ChatTemplate | None: ...

    @property
    def session_len(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def hidden_size(self) -> int: ...

    @property
    def gives_score(self) -> bool: ...

    @property
    def architecture(self) -> str: ...

    @property
    def eos_ids(self) -> list[int]: ...

def fetch_model(model: str | os.PathLike[str], revision: str = ..., download_dir: str | os.PathLike[str] = ...,
                weights: bool = True, progress: object | None = None) -> pathlib.Path:
    """
    The path of a model's files: `model` if there is such a path, otherwise where they were downloaded to;
    progress(done_bytes, total_bytes) is called now and then.
    """

def get_ppl(pipeline: Pipeline, input_ids: Sequence[Sequence[int]]) -> list[float]:
    """Mean negative log-likelihood per token (nats) of each id list."""

def get_reward_score(pipeline: Pipeline, input_ids: list) -> list[float]:
    """What a reward model says after each id list."""

def set_log_level(name: str) -> None:
    """
    CRITICAL, ERROR, WARNING, INFO or DEBUG: what the native side prints to stderr.
    """

def configure_log(file: str | os.PathLike[str], with_pid: bool, color: str) -> None:
    """
    Once, before anything is logged: also log to `file` ("": no), with the process id; color: auto, always, never.
    """

def supported_architectures() -> list[str]:
    """Names of the model architectures that can be loaded, sorted."""
