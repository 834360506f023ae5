"""How a prompt becomes text: what a call says about it, for templates of both kinds."""
from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from . import _core
from ._generation import GenerationConfig
from ._inputs import check_flag
from .errors import ArgumentTypeError, InvalidArgumentError

_NAMES = ("tools", "chat_template_kwargs", "enable_thinking", "reasoning_effort", "add_generation_prompt",
          "continue_final_message")
_GENERATION_NAMES = {field.name for field in fields(GenerationConfig)}


@dataclass(frozen=True)
class Rendering:
    """The arguments of a call that the chat template sees; see ``Pipeline.infer``."""

    do_preprocess: bool = True
    tools: list[dict[str, Any]] | None = None
    variables: dict[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool = False

    @classmethod
    def of(cls, do_preprocess: bool = True, **given: Any) -> Rendering:
        """From a call's arguments; None means not given. Raises ArgumentTypeError for other names and types."""
        for name in given:
            if name in _GENERATION_NAMES:
                raise ArgumentTypeError(f"unexpected argument {name!r}; put it into "
                                        f"gen_config=GenerationConfig({name}=...)")
            if name not in _NAMES:
                raise ArgumentTypeError(f"unexpected argument {name!r}; the chat template takes {', '.join(_NAMES)}")
        variables = given.get("chat_template_kwargs")
        variables = {} if variables is None else variables
        if not isinstance(variables, dict):
            raise ArgumentTypeError(f"chat_template_kwargs is {type(variables).__name__}; expected a dict")
        tools = given.get("tools")
        if tools is not None and not isinstance(tools, (list, tuple)):
            raise ArgumentTypeError(f"tools is {type(tools).__name__}; expected a list of functions")
        named = {name: given[name] for name in ("enable_thinking", "reasoning_effort") if given.get(name) is not None}
        continues = given.get("continue_final_message")
        continues = continues is not None and check_flag(continues, "continue_final_message")
        generates = given.get("add_generation_prompt")
        generates = not continues if generates is None else generates
        thinks = named.get("enable_thinking", True)
        for name, flag in (("do_preprocess", do_preprocess), ("add_generation_prompt", generates),
                           ("enable_thinking", thinks)):
            check_flag(flag, name)
        if generates and continues:
            raise InvalidArgumentError("continue_final_message and add_generation_prompt are both True; a prompt "
                                       "either continues the last message or opens a new one")
        return cls(do_preprocess, list(tools) if tools is not None else None, {**variables, **named}, generates,
                   continues)

    def native(self) -> _core.RunOptions:
        """The native form."""
        options = _core.RunOptions()
        options.do_preprocess = self.do_preprocess
        options.add_generation_prompt = self.add_generation_prompt
        options.continue_final_message = self.continue_final_message
        options.set_template_extra(self.variables)
        options.set_tools(self.tools)
        return options

    def keywords(self) -> dict[str, Any]:
        """For ``messages2prompt`` of a template; what says nothing is left out, since not every template takes it."""
        words = dict(self.variables)
        if self.tools:
            words["tools"] = self.tools
        if not self.add_generation_prompt:
            words["add_generation_prompt"] = False
        if self.continue_final_message:
            words["continue_final_message"] = True
        return words

    def apply(self, template: Any, prompt: Any) -> str:
        """``prompt``, text or messages, through a template object."""
        words = self.keywords()
        if isinstance(prompt, str) and not words:
            return template.get_prompt(prompt)
        return template.messages2prompt(prompt, **words)


@dataclass(frozen=True)
class PromptPreview:
    """A prompt as the model gets it: its text after the chat template, and its token ids."""

    text: str
    token_ids: list[int]


__all__ = ["PromptPreview", "Rendering"]
