"""Models by name, from a stand-in hub on this machine; the cache is shared with huggingface_hub."""
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

import lmdeploy
from hub_server import COMMIT, HubServer, etag
from lmdeploy import PytorchEngineConfig, Tokenizer, TurbomindEngineConfig, pipeline
from lmdeploy.turbomind import TurboMind

huggingface_hub = pytest.importorskip("huggingface_hub")

_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE",
              "TRANSFORMERS_OFFLINE", "LMDEPLOY_USE_MODELSCOPE", "LMDEPLOY_USE_OPENMIND_HUB", "http_proxy", "HTTP_PROXY",
              "all_proxy", "ALL_PROXY")


@pytest.fixture
def hub(alphabet_path):
    server = HubServer(alphabet_path)
    yield server
    server.close()


@pytest.fixture(autouse=True)
def hub_environment(monkeypatch, tmp_path, request):
    """A home of its own; and an address where nobody listens unless the test has a hub."""
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    has_hub = "hub" in request.fixturenames
    monkeypatch.setenv("HF_ENDPOINT", request.getfixturevalue("hub").url if has_hub else "http://127.0.0.1:1")


@pytest.fixture
def snapshot(tmp_path):
    return tmp_path / "hf" / "hub" / "models--org--tiny" / "snapshots" / COMMIT


def answer(path, **kwargs):
    with pipeline(path, num_threads=1, session_len=64, **kwargs) as pipe:
        return pipe("x", do_preprocess=False).text


def test_pipeline_by_name(hub, snapshot):
    with pipeline("org/tiny", num_threads=1, session_len=64) as pipe:
        assert pipe("x", do_preprocess=False).text == "yz"
        assert pipe.model_name == "org/tiny"
        assert pipe.model_path == str(snapshot)
    assert os.readlink(snapshot / "config.json") == f"../../blobs/{etag('config.json', hub.files['config.json'])}"
    assert (snapshot.parents[1] / "refs" / "main").read_text() == COMMIT


def test_second_time_and_offline(hub, monkeypatch):
    assert answer("org/tiny") == "yz"
    before = len(hub.requests)
    assert answer("org/tiny") == "yz"
    assert hub.requests[before:] == ["GET /api/models/org/tiny/revision/main"]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert answer("org/tiny") == "yz"
    assert answer("org/tiny", revision=COMMIT) == "yz"
    assert len(hub.requests) == before + 1


@pytest.mark.parametrize("config_class", [TurbomindEngineConfig, PytorchEngineConfig])
def test_revision_and_download_dir(hub, tmp_path, config_class):
    config = config_class(revision=COMMIT, download_dir=str(tmp_path / "mine"))
    with pipeline("org/tiny", config) as pipe:
        assert pipe.model_path == str(tmp_path / "mine" / "models--org--tiny" / "snapshots" / COMMIT)
    assert not (tmp_path / "hf").exists()
    with pytest.raises(FileNotFoundError, match="revision v9"):
        pipeline("org/tiny", revision="v9")


def test_turbomind_and_tokenizer_by_name(hub, snapshot):
    assert Tokenizer("org/tiny").encode("ab") == [97, 98]
    assert not (snapshot / "model.safetensors").exists()
    with TurboMind.from_pretrained("org/tiny") as model:
        assert model.model_name == "org/tiny"
        assert model.tokenizer.encode("ab") == [97, 98]


def test_what_we_write_huggingface_hub_reads(hub, snapshot):
    answer("org/tiny")
    before = len(hub.requests)
    cache = str(snapshot.parents[2])
    found = huggingface_hub.snapshot_download("org/tiny", local_files_only=True, cache_dir=cache)
    assert found == str(snapshot)
    config = huggingface_hub.try_to_load_from_cache("org/tiny", "config.json", cache_dir=cache)
    assert config == str(snapshot / "config.json")
    [repo] = huggingface_hub.scan_cache_dir(cache).repos
    assert (repo.repo_id, [sorted(r.refs) for r in repo.revisions]) == ("org/tiny", [["main"]])
    assert len(hub.requests) == before


_DOWNLOAD = """
import sys
import huggingface_hub
names = sys.argv[1:]
for name in names:
    huggingface_hub.hf_hub_download("org/tiny", name)
"""


def test_what_huggingface_hub_writes_we_read(hub, snapshot, monkeypatch):
    names = [name for name in hub.files if not name.startswith(".")]
    subprocess.run([sys.executable, "-c", _DOWNLOAD, *names], check=True, timeout=120)  # it reads HF_* when imported
    before = len(hub.requests)
    assert answer("org/tiny") == "yz"
    assert hub.requests[before:] == ["GET /api/models/org/tiny/revision/main"]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert answer("org/tiny") == "yz"
    assert len(hub.requests) == before + 1


def test_locks_are_those_of_huggingface_hub(hub, snapshot):
    filelock = pytest.importorskip("filelock")
    name = etag("model.safetensors", hub.files["model.safetensors"])
    lock = snapshot.parents[2] / ".locks" / "models--org--tiny" / f"{name}.lock"
    lock.parent.mkdir(parents=True)
    done = []
    with filelock.FileLock(lock):
        thread = threading.Thread(target=lambda: done.append(answer("org/tiny")))
        thread.start()
        while f"HEAD /org/tiny/resolve/{COMMIT}/model.safetensors" not in hub.requests:
            time.sleep(0.01)
        assert f"GET /org/tiny/resolve/{COMMIT}/model.safetensors" not in hub.requests
    thread.join()
    assert done == ["yz"]


_INTERRUPTED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored when the tests run in a background job
import lmdeploy
try:
    lmdeploy.pipeline("org/tiny")
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_keeps_what_has_arrived(hub, snapshot):
    hub.hold = threading.Event()
    child = subprocess.Popen([sys.executable, "-c", _INTERRUPTED], stdout=subprocess.PIPE, text=True)
    assert hub.held.wait(60)
    content = hub.files["model.safetensors"]
    partial = snapshot.parents[1] / "blobs" / f"{etag('model.safetensors', content)}.incomplete"
    while not partial.exists() or partial.stat().st_size < len(content) // 2:
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=60)[0] == "interrupted\n"
    hub.hold.set()
    assert partial.stat().st_size == len(content) // 2
    assert answer("org/tiny") == "yz"


def test_unknown_model_says_how_a_path_is_written(hub):
    with pytest.raises(FileNotFoundError, match="org/other.*no such model.*write ./org/other"):
        pipeline("org/other")
    assert hub.requests == ["GET /api/models/org/other/revision/main"]


def test_no_network_and_no_copy():
    with pytest.raises(OSError, match="cannot be reached.*no copy in"):
        pipeline("org/tiny")


def test_offline_without_a_copy(hub, monkeypatch):
    monkeypatch.setenv("TRANSFORMERS_OFFLINE", "1")
    with pytest.raises(FileNotFoundError, match="HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE"):
        Tokenizer("org/tiny")
    assert hub.requests == []


def test_a_local_path_is_never_looked_up(hub, alphabet_path, monkeypatch):
    path = pathlib.Path(alphabet_path)
    monkeypatch.chdir(path.parent.parent)
    assert answer(f"{path.parent.name}/{path.name}") == "yz"
    for wrong in ("no-such", "./org/tiny", "org/tiny.gguf", "a/b/c", "https://hub.example/a/b"):
        with pytest.raises(FileNotFoundError, match="no such folder or file"):
            pipeline(wrong)
    assert hub.requests == []


def test_openmind_is_refused(hub, monkeypatch):
    monkeypatch.setenv("LMDEPLOY_USE_OPENMIND_HUB", "true")
    with pytest.raises(NotImplementedError, match="LMDEPLOY_USE_OPENMIND_HUB"):
        pipeline("org/tiny")


def test_progress_reaches_the_total(hub, tmp_path):
    seen = []
    lmdeploy._core.fetch_model("org/tiny", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] > 0
