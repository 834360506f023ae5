"""Chat templates: messages to prompt text.

``ChatTemplateConfig`` names a built-in template and replaces some of its strings. A template of one's own is a subclass
of ``BaseChatTemplate`` registered in ``MODELS``:

    >>> @MODELS.register_module(name="robot")
    ... class Robot(BaseChatTemplate):
    ...     def __init__(self, user="<u>", assistant="<a>", **kwargs):
    ...         super().__init__(user=user, assistant=assistant, **kwargs)
    >>> pipe = pipeline(path, chat_template_config=ChatTemplateConfig("robot"))
"""
from __future__ import annotations

import dataclasses
import json
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from . import _core
from ._config import Config
from ._inputs import check_flag, check_text
from ._native import native_template_config
from .errors import ArgumentTypeError, ConfigValueError, InvalidArgumentError, UnsupportedError

_CAPABILITIES = (None, "chat", "completion", "infilling", "python")

Message = dict[str, Any]


def _text_of(content: Any) -> str:
    """The text of a message: a string, or text parts joined by newlines. No content is no text."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, (list, tuple)):
        raise ArgumentTypeError(f"message content is {type(content).__name__}; expected text or a list of parts")
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise UnsupportedError(f"message parts of type {kind!r} are not supported yet: models take text only")
    return "\n".join(part["text"] for part in content)


class BaseChatTemplate:
    """A template made of fixed strings around each message; the base of templates written in Python.

    Args:
        system, eosys: Around the system text.
        meta_instruction: System text when the messages bring none; None: no system block at all.
        user, eoh: Around a user message.
        assistant, eoa: Around an answer.
        separator: Between rounds.
        tool, eotool: Around the result of a tool.
        capability: ``chat``, or ``completion`` to take single prompts as they are.
        stop_words: Texts that end the answer.
    """

    def __init__(self, system: str = "", meta_instruction: str | None = "", eosys: str = "", user: str = "",
                 eoh: str = "", assistant: str = "", eoa: str = "", separator: str = "", tool: str = "",
                 eotool: str = "", capability: str = "chat", stop_words: list[str] | None = None, **kwargs: Any):
        self.system = system
        self.meta_instruction = meta_instruction
        self.eosys = eosys
        self.user = user
        self.eoh = eoh
        self.assistant = assistant
        self.eoa = eoa
        self.separator = separator
        self.tool = tool
        self.eotool = eotool
        self.capability = capability
        self.stop_words = stop_words
        self.__dict__.update(kwargs)

    def __call__(self) -> BaseChatTemplate:
        return self

    @classmethod
    def match(cls, model_path: str) -> bool | str | None:
        """Whether this template belongs to the model at ``model_path`` (asked when none is configured)."""
        return None

    def get_prompt(self, prompt: str, sequence_start: bool = True) -> str:
        """A single user text as prompt; ``sequence_start`` False: a later turn whose history is held already."""
        if self.capability == "completion":
            return prompt
        turn = f"{self.user}{prompt}{self.eoh}{self.assistant}"
        if not sequence_start:
            return f"{self.separator}{turn}"
        return f"{self._opening()}{turn}"

    def messages2prompt(self, messages: str | list[Message], sequence_start: bool = True, **kwargs: Any) -> str:
        """Role/content messages as prompt.

        Keywords of the call (``add_generation_prompt``, ``continue_final_message``, ``tools``, variables) arrive in
        ``kwargs``. Raises InvalidArgumentError for a role that the template lacks, and for tools.
        """
        if kwargs.get("tools"):
            raise InvalidArgumentError(f"tools: {type(self).__name__} has no place for them; let its messages2prompt "
                                       "write them")
        if isinstance(messages, str):
            return self.get_prompt(messages, sequence_start)
        opens = sequence_start and (not messages or messages[0].get("role") != "system")
        text = self._opening() if opens else ""
        for message in messages:
            before, after = self._box(message.get("role"))
            text += f"{before}{_text_of(message.get('content'))}{after}"
        generates = kwargs.get("add_generation_prompt", True)
        prefills = generates and bool(messages) and messages[-1].get("role") == "assistant"
        if messages and (prefills or kwargs.get("continue_final_message", False)):  # the answer goes on from there
            return text.removesuffix(self._box(messages[-1].get("role"))[1])
        return text + self.assistant if generates else text

    def _opening(self) -> str:
        return "" if self.meta_instruction is None else f"{self.system}{self.meta_instruction}{self.eosys}"

    def _box(self, role: Any) -> tuple[str, str]:
        boxes = {"user": (self.user, self.eoh), "assistant": (self.assistant, self.eoa + self.separator),
                 "system": (self.system, self.eosys), "tool": (self.tool, self.eotool)}
        if role not in boxes:
            raise InvalidArgumentError(f"message role {role!r} is not one of {', '.join(boxes)}")
        return boxes[role]


class NativeTemplate:
    """A built-in template, or the one that came with a model."""

    def __init__(self, native: _core.ChatTemplate):
        self._native = native

    def __call__(self) -> NativeTemplate:
        return self

    def __repr__(self) -> str:
        return f"NativeTemplate({self.name!r})"

    @property
    def name(self) -> str:
        """Catalogue name, or ``jinja`` for a template that came with a model."""
        return self._native.name

    @property
    def stop_words(self) -> list[str]:
        """Texts that end the answer."""
        return self._native.stop_words

    def get_prompt(self, prompt: str, sequence_start: bool = True) -> str:
        """A single user text as prompt; ``sequence_start`` False: a later turn whose history is held already."""
        check_text(prompt, "the prompt")
        return self._native.render(prompt, sequence_start=check_flag(sequence_start, "sequence_start"))

    def messages2prompt(self, messages: str | list[Message], sequence_start: bool = True,
                        tools: list[dict[str, Any]] | None = None, add_generation_prompt: bool = True,
                        continue_final_message: bool = False, **kwargs: Any) -> str:
        """Role/content messages as prompt; further keywords (``enable_thinking``, ...) are template variables."""
        if not isinstance(messages, (str, list, tuple)):
            raise ArgumentTypeError(f"messages is {type(messages).__name__}; expected text or a list of messages")
        for name, flag in (("sequence_start", sequence_start), ("add_generation_prompt", add_generation_prompt),
                           ("continue_final_message", continue_final_message)):
            check_flag(flag, name)
        return self._native.render(messages, add_generation_prompt, sequence_start, tools, kwargs,
                                   continue_final_message)


class Registry:
    """Chat templates by name: those registered from Python, then the built-in ones."""

    def __init__(self) -> None:
        self.module_dict: dict[str, Any] = {}

    def register_module(self, name: str | list[str] | None = None, force: bool = False,
                        module: type | None = None) -> Any:
        """Class decorator. Raises KeyError for a name that is registered already, unless ``force``."""

        def register(cls: type) -> type:
            names = [name or cls.__name__] if not isinstance(name, list) else name
            for one in names:
                if not force and (one in self.module_dict or one in _core.chat_template_names()):
                    raise KeyError(f"{one} is already registered in MODELS")
            self.module_dict.update(dict.fromkeys(names, cls))
            return cls

        return register if module is None else register(module)

    def get(self, name: str) -> Callable[..., Any] | None:
        """What makes the template: ``MODELS.get("internlm2")()``. None for an unknown name."""
        if name in self.module_dict:
            return self.module_dict[name]
        return partial(_native_template, name) if name in _core.chat_template_names() else None

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def match(self, model_path: str) -> Any:
        """The registered class that says it belongs to this model, or None."""
        return next((cls for cls in self.module_dict.values()
                     if hasattr(cls, "match") and cls.match(model_path)), None)


MODELS = Registry()


@dataclass
class ChatTemplateConfig(Config):
    """Which chat template to use, and which of its strings to replace; None keeps the template's own.

    Args:
        model_name: A built-in template (``lmdeploy list``), one registered in MODELS, or a new name for a template
            made of the given strings. ``hf``: the one that came with the model.
        model_path: Not needed; the pipeline knows it.
        system, ..., stop_words: See BaseChatTemplate.

    Raises:
        ArgumentTypeError: (a TypeError and ValueError) a wrong type or an unknown name.
    """

    model_name: str
    model_path: str | None = None
    system: str | None = None
    meta_instruction: str | None = None
    eosys: str | None = None
    user: str | None = None
    eoh: str | None = None
    assistant: str | None = None
    eoa: str | None = None
    tool: str | None = None
    eotool: str | None = None
    separator: str | None = None
    capability: str | None = None
    stop_words: list[str] | None = None

    def _validate(self) -> None:
        if self.capability not in _CAPABILITIES:
            raise ConfigValueError(f"ChatTemplateConfig.capability is {self.capability!r}; expected chat, completion, "
                                   "infilling or python")

    @property
    def chat_template(self) -> Any:
        """The template, with ``get_prompt`` and ``messages2prompt``; ``config.chat_template()`` gives the same."""
        return build_template(self)

    def to_json(self, file_path: str | os.PathLike[str] | None = None) -> str:
        """JSON text of all fields, also written to ``file_path`` if given."""
        text = json.dumps(dataclasses.asdict(self), ensure_ascii=False, indent=4)
        if file_path is not None:
            with open(file_path, "w", encoding="utf-8") as file:
                file.write(text)
        return text

    @classmethod
    def from_json(cls, file_or_string: str | os.PathLike[str]) -> ChatTemplateConfig:
        """From a JSON file or JSON text. Raises ValueError: no such file and no JSON, or unknown keys."""
        if not isinstance(file_or_string, (str, os.PathLike)):
            raise ArgumentTypeError(f"from_json takes a path or JSON text; found {type(file_or_string).__name__}")
        if os.path.exists(file_or_string):
            with open(file_or_string, encoding="utf-8") as file:
                values = json.load(file)
        else:
            text = os.fspath(file_or_string)
            if not text.lstrip().startswith(("{", "[", '"')):
                raise InvalidArgumentError(f"chat template {text!r} is neither an existing file nor JSON text")
            values = json.loads(text)
        if not isinstance(values, dict):
            raise InvalidArgumentError(f"a chat template is a JSON object; found {type(values).__name__}")
        if values.get("model_name") is None:
            values["model_name"] = uuid.uuid4().hex
        return cls(**values)

    def is_own_of_model(self) -> bool:
        """Whether this asks for nothing but the template that comes with the model."""
        return self.model_name == "hf" and self.changed() <= {"model_name", "model_path"}


def _native_template(name: str, **fields: Any) -> NativeTemplate:
    config = ChatTemplateConfig(model_name=name, **fields)
    return NativeTemplate(_core.make_catalogue_template(native_template_config(config)))


def build_template(config: ChatTemplateConfig) -> Any:
    """The template object of a config."""
    registered = MODELS.module_dict.get(config.model_name)
    if registered is None:
        return NativeTemplate(_core.make_catalogue_template(native_template_config(config)))
    names = config.changed() - {"model_name", "model_path"}
    return registered(**{name: getattr(config, name) for name in names})


__all__ = ["MODELS", "BaseChatTemplate", "ChatTemplateConfig"]
