"""What lmdeploy raises.

Every class is an ``LmdeployError`` and also the built-in exception that fits, so both kinds of ``except`` work.
``code`` is a stable name for programs; the message says what was being done, what was found and what was expected.
"""
from __future__ import annotations


class LmdeployError(Exception):
    """Base of everything that lmdeploy raises on purpose."""

    code = "internal"


class InvalidArgumentError(LmdeployError, ValueError):
    """A bad value from the caller: an argument, a config field, a prompt."""

    code = "invalid_argument"


class ConfigValueError(InvalidArgumentError, AssertionError):
    """A config field outside its range; an AssertionError too, as LMDeploy documents."""


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """A value of the wrong type, or a name that does not exist."""


class InvalidDataError(LmdeployError, ValueError):
    """The bytes of a file are not what its format says."""

    code = "invalid_data"


class NotFoundError(LmdeployError, FileNotFoundError):
    """No such file, model or session."""

    code = "not_found"


class UnsupportedError(LmdeployError, NotImplementedError):
    """Understood, but not something this version can do."""

    code = "unsupported"


class ResourceExhaustedError(LmdeployError, MemoryError):
    """Memory, cache blocks or the queue are full."""

    code = "resource_exhausted"


class BusyError(LmdeployError, RuntimeError):
    """The session already runs a request."""

    code = "busy"


class ClosedError(LmdeployError, RuntimeError):
    """The pipeline has been closed, or belongs to another process."""

    code = "closed"


class IoError(LmdeployError, OSError):
    """The operating system refused."""

    code = "io"


class InternalError(LmdeployError, RuntimeError):
    """A fault of lmdeploy itself."""

    code = "internal"


#: The class for each native error code.
BY_CODE: dict[str, type[LmdeployError]] = {
    cls.code: cls
    for cls in (InvalidArgumentError, InvalidDataError, NotFoundError, UnsupportedError, ResourceExhaustedError,
                BusyError, ClosedError, IoError, InternalError)
}


class LmdeployWarning(UserWarning):
    """Something was accepted but does not do what one may expect; the text says what."""
