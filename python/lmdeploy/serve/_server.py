"""lmdeploy.serve(): starts `lmdeploy serve api_server` and waits until it answers."""
from __future__ import annotations

import atexit
import dataclasses
import json
import os
import socket
import ssl as ssl_library
import subprocess
import time
import urllib.request
from typing import Any

from ..__main__ import find_program
from .._config import default_of
from .._engine_configs import modern
from .._fields import check_fields
from ..errors import ArgumentTypeError, InternalError, InvalidArgumentError, NotFoundError, UnsupportedError
from ..model import ChatTemplateConfig
from .openai.api_client import APIClient

_POLL_S = 0.1
#: Fields of engine configs whose flag has another name.
_FLAGS = {"device_type": "device", "block_size": "cache_block_seq_len", "num_gpu_blocks": "cache_max_entry_count"}
#: Fields without a flag that change nothing in a server.
_NO_FLAG = ("thread_safe", "empty_init", "model_name")


def _flag(name: str, value: Any) -> list[str]:
    """A flag as the program takes it; none for None and False."""
    flag = "--" + _FLAGS.get(name, name).strip("_").replace("_", "-")
    if name == "rounded_activations" and value is not None:
        return [f"{flag}={str(value).lower()}"]
    if name == "async_":
        return [f"{flag}={int(value)}"]
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    if isinstance(value, dict):
        value = json.dumps(value)
    return [flag, *map(str, value)] if isinstance(value, (list, tuple)) else [f"{flag}={value}"]


def _config_flags(config: Any) -> list[str]:
    """Of the fields that the caller set."""
    flags: list[str] = []
    if config is None:
        return flags
    config = modern(config)
    check_fields(config)
    types = {field.name: field for field in dataclasses.fields(config)}
    for name in sorted(config._given):
        value = getattr(config, name)
        if name == "use_logn_attn" and value:
            raise UnsupportedError(f"{type(config).__name__}.{name}={value!r}: a server has no flag for it")
        if name == "enable_metrics":
            flags += _flag("disable_metrics", not value)
        elif name not in _NO_FLAG and value != default_of(types[name]):
            flags += _flag(name, value)
    return flags


def _template_flags(config: ChatTemplateConfig | str | None) -> list[str]:
    if config is None:
        return []
    return [f"--chat-template={config.to_json() if isinstance(config, ChatTemplateConfig) else config}"]


def _listed(api_keys: Any) -> list[str]:
    keys = api_keys.split(",") if isinstance(api_keys, str) else list(api_keys or ())
    if not all(isinstance(key, str) and key.strip() for key in keys):
        raise InvalidArgumentError("lmdeploy.serve(): api_keys: a key is empty or no string; expected None, a key, or a "
                                   "list of them")
    return [key.strip() for key in keys]


def _check_port(server_name: str, server_port: int) -> None:
    """Otherwise the server that has the port would be taken for the new one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(server_name, server_port, type=socket.SOCK_STREAM)[0]
    except OSError:
        return  # the server says what is wrong with the name
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(1)
        except OSError as error:
            raise InternalError(f"lmdeploy.serve(): a server cannot listen on {server_name}:{server_port}: "
                                f"{error.strerror}") from error


def _answers(url: str) -> bool:
    unchecked = ssl_library._create_unverified_context()  # only to see whether it answers
    try:
        with urllib.request.urlopen(url + "/health", context=unchecked):
            return True
    except OSError:  # nobody listens yet, or status 503: loading
        return False


def _wait_until_ready(process: subprocess.Popen, url: str) -> None:
    while True:
        ready = _answers(url)
        if process.poll() is not None:
            raise InternalError(f"lmdeploy.serve(): the server has ended with code {process.returncode}; what it wrote "
                                "says why")
        if ready:
            return
        time.sleep(_POLL_S)


def start_server(model_path: str, model_name: str | None, backend: str, backend_config: Any,
                 chat_template_config: Any, server_name: str, server_port: int, log_level: str, api_keys: Any,
                 ssl: bool, options: dict[str, Any]) -> APIClient:
    program = find_program()
    if program is None:
        raise NotFoundError("lmdeploy.serve(): the program `lmdeploy` is not installed beside this package")
    if not isinstance(server_port, int) or not 0 < server_port < 65536:
        raise ArgumentTypeError(f"server_port: found {server_port!r}; expected 1 to 65535")
    keys = _listed(api_keys)
    flags = [f"--server-name={server_name}", f"--server-port={server_port}", f"--log-level={log_level}",
             *_flag("backend", backend), *_flag("model_name", model_name), *_flag("ssl", ssl),
             *_config_flags(backend_config), *_template_flags(chat_template_config)]
    if keys:
        flags.append(f"--api-keys={','.join(keys)}")
    for name, value in options.items():
        flags += _flag(name, value)
    _check_port(server_name, server_port)
    # The pipe ends with this program, however it ends, and the server with the pipe.
    process = subprocess.Popen([str(program), "serve", "api_server", model_path, *flags], stdin=subprocess.PIPE,
                               env={**os.environ, "LMDEPLOY_END_WITH_STDIN": "1"})
    atexit.register(process.terminate)
    url = f"{'https' if ssl else 'http'}://{server_name}:{server_port}"
    try:
        _wait_until_ready(process, url)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    print(f"The server runs as process {process.pid}; end it by `kill {process.pid}`. It also ends with this program.")
    client = APIClient(url, keys[0] if keys else None)
    client.process = process  # type: ignore[attr-defined]
    return client
