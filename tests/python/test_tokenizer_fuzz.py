"""Random texts and ids through lmdeploy.Tokenizer and the library `tokenizers`; tokenizer_fuzz.py has more of it."""
import pytest

pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")

import tokenizer_fuzz  # noqa: E402
import tokenizer_models  # noqa: E402

DATA = tokenizer_fuzz.data_tokenizers()


def check(name):
    pair = tokenizer_fuzz.load(name)
    count, found = pair.find(f"test.{name}", 2000)
    assert [pair.report(sample) for sample in found] == []
    assert count == 2000


@pytest.mark.parametrize("name", tokenizer_models.SMALL)
def test_small_tokenizers(name):
    check(name)


@pytest.mark.skipif(not DATA, reason="the tokenizers of the reference data are not there")
@pytest.mark.parametrize("name", DATA)
def test_tokenizers_of_the_reference_data(name):
    check(name)


@pytest.mark.parametrize("component", tokenizer_models.CHARACTER_COMPONENTS, ids=str)
def test_characters(component):
    assert tokenizer_fuzz.sweep(component, step=37) == []


def test_random_tokenizers():
    count, texts, found = tokenizer_fuzz.run_random("test", 100)
    assert found == []
    assert texts > 0.8 * count * 60
