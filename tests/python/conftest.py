"""Fixtures: tiny models made on the spot, and pipelines on them."""
import pathlib

import pytest

try:
    import lmdeploy
    from lmdeploy import _warn
except ImportError as error:
    pytest.exit("These tests run on an installed lmdeploy (make, then .venv/bin/python -m pytest tests/python): "
                f"{error}", returncode=2)

import tiny


@pytest.fixture(autouse=True)
def fresh_warnings():
    """Every test sees one-time warnings anew."""
    _warn.reset()


@pytest.fixture(scope="session")
def alphabet_path(tmp_path_factory):
    """A model that writes on in alphabetical order and ends its answer after z; see tiny.py."""
    return str(tiny.write_alphabet_model(tmp_path_factory.mktemp("alphabet")))


@pytest.fixture(scope="session")
def endless_path(tmp_path_factory):
    """The same, but a follows z."""
    return str(tiny.write_alphabet_model(tmp_path_factory.mktemp("endless"), endless=True))


@pytest.fixture(scope="session")
def random_model(tmp_path_factory):
    """(path, weights, config) of a random two-layer Llama without tokenizer."""
    return tiny.write_random_llama(tmp_path_factory.mktemp("random"))


@pytest.fixture(scope="session")
def pipe(alphabet_path):
    with lmdeploy.pipeline(alphabet_path, session_len=256, max_batch_size=16, num_threads=1) as opened:
        yield opened


@pytest.fixture(scope="session")
def endless(endless_path):
    with lmdeploy.pipeline(endless_path, session_len=60000, max_batch_size=16, num_threads=1) as opened:
        yield opened


@pytest.fixture(scope="session")
def demo_model():
    path = pathlib.Path(__file__).parents[2] / "models" / "SmolLM2-135M-Instruct-Q4_1.gguf"
    if not path.exists():
        pytest.skip(f"{path} is not there (make demo)")
    return str(path)
