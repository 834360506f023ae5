"""Importing, the exported names, and ``python -m lmdeploy``."""
import importlib
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import lmdeploy

PACKAGE = pathlib.Path(lmdeploy.__file__).parent


def run_python(code, cwd, **env):
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, env={**os.environ, **env}, capture_output=True,
                          text=True, timeout=120)


def test_exports():
    for name in lmdeploy.__all__:
        assert hasattr(lmdeploy, name)
    assert lmdeploy.VisonConfig is lmdeploy.VisionConfig
    assert lmdeploy.version_info == tuple(int(part) for part in lmdeploy.__version__.split("."))


@pytest.mark.parametrize("path", [
    "lmdeploy.messages.GenerationConfig", "lmdeploy.messages.EngineGenerationConfig",
    "lmdeploy.messages.TurbomindEngineConfig", "lmdeploy.messages.PytorchEngineConfig", "lmdeploy.messages.Response",
    "lmdeploy.messages.EngineOutput", "lmdeploy.messages.SpeculativeConfig", "lmdeploy.messages.VisionConfig",
    "lmdeploy.messages.ResponseType", "lmdeploy.messages.QuantPolicy",
    "lmdeploy.model.MODELS", "lmdeploy.model.BaseChatTemplate", "lmdeploy.model.ChatTemplateConfig",
    "lmdeploy.vl.load_image", "lmdeploy.vl.utils.encode_image_base64", "lmdeploy.vl.constants.IMAGE_TOKEN",
    "lmdeploy.turbomind.TurboMind", "lmdeploy.turbomind.EngineConfig", "lmdeploy.pytorch.EngineConfig",
    "lmdeploy.tokenizer.Tokenizer", "lmdeploy.serve.async_engine.AsyncEngine", "lmdeploy.version.version_info",
    "lmdeploy.serve.openai.api_client.APIClient", "lmdeploy.serve.openai.api_client.get_model_list",
    "lmdeploy.serve.client.main", "lmdeploy.serve.turbomind.chatbot.Chatbot",
    "lmdeploy.serve.gradio.turbomind_coupled.run_local", "lmdeploy.serve.gradio.app.run_local",
])
def test_documented_import_paths(path):
    module, name = path.rsplit(".", 1)
    assert hasattr(importlib.import_module(module), name)


def test_pictures_are_refused_by_name():
    from lmdeploy.vl import load_image
    with pytest.raises(NotImplementedError, match="load_image"):
        load_image("picture.png")


def test_f78_import_and_text_tools_need_no_gpu(alphabet_path, tmp_path):
    code = ("import sys, lmdeploy\n"
            f"t = lmdeploy.Tokenizer({alphabet_path!r})\n"
            "assert t.decode(t.encode('hi')) == 'hi'\n"
            "assert 'hi' in lmdeploy.ChatTemplateConfig('internlm2').chat_template.get_prompt('hi')\n"
            "assert not {'torch', 'transformers', 'pydantic'} & set(sys.modules)\n"
            "print(lmdeploy.__version__)")
    done = run_python(code, tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == lmdeploy.__version__


def copy_without_module(target):
    shutil.copytree(PACKAGE, target / "lmdeploy", ignore=shutil.ignore_patterns("_core*.so", "__pycache__"))
    return target


def test_f79_source_folder_that_shadows_the_package_is_named(tmp_path):
    source = copy_without_module(tmp_path / "source")
    done = run_python("import lmdeploy", source)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("ImportError: lmdeploy was imported from the source folder")
    assert str(source / "lmdeploy") in last and str(PACKAGE) in last and "another folder" in last


def test_f79_module_of_another_python_is_named(tmp_path):
    source = copy_without_module(tmp_path / "source")
    (source / "lmdeploy" / "_core.cpython-39-x86_64-linux-gnu.so").touch()
    done = run_python("import lmdeploy", source)
    assert "_core.cpython-39" in done.stderr and "for another Python" in done.stderr


def test_f79_module_that_does_not_load_is_named(tmp_path):
    source = copy_without_module(tmp_path / "source")
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    (source / "lmdeploy" / f"_core{suffix}").write_bytes(b"not a library")
    done = run_python("import lmdeploy", source)
    assert done.stderr.strip().splitlines()[-1].startswith("ImportError: lmdeploy: the native module in")


def test_log_file_of_the_environment(alphabet_path, tmp_path):
    code = ("import sys, lmdeploy\nwith lmdeploy.pipeline(sys.argv[1], session_len=8) as pipe:\n"
            "    pipe('too long for it')")
    log = tmp_path / "log.txt"
    done = subprocess.run([sys.executable, "-c", code, alphabet_path], cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "LMDEPLOY_LOG_FILE": str(log)}, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "session_len is 8" in log.read_text() and "WARNING" in log.read_text().upper()


def test_python_m_is_the_native_program():
    done = subprocess.run([sys.executable, "-m", "lmdeploy", "--version"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert lmdeploy.__version__ in done.stdout


def test_python_m_without_the_program_says_where_it_looked(monkeypatch, capsys):
    from lmdeploy import __main__ as entry
    monkeypatch.setattr(entry, "_candidates", lambda: iter([pathlib.Path("/nowhere/lmdeploy")]))
    assert entry.main() == 1
    assert "/nowhere/lmdeploy" in capsys.readouterr().err


def test_a_script_of_that_name_is_not_the_program(tmp_path, monkeypatch):
    from lmdeploy import __main__ as entry
    script = tmp_path / "lmdeploy"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setattr(entry, "_candidates", lambda: iter([script]))
    assert entry.find_program() is None


def test_clients_of_triton_are_refused_by_name():
    from lmdeploy.serve.client import main
    from lmdeploy.serve.turbomind.chatbot import Chatbot
    for call in (lambda: Chatbot("1.2.3.4:33337"), main):
        with pytest.raises(lmdeploy.errors.UnsupportedError, match="Triton are not supported; run `lmdeploy serve api_server"):
            call()
    done = subprocess.run([sys.executable, "-m", "lmdeploy.serve.client", "1.2.3.4:33337"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("lmdeploy: error: ") and done.stderr.count("\n") == 1
