"""What reads text from outside keeps its promises: for the corpus, for Hypothesis, and under the fuzzer itself."""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import corpus, targets
from tests.fuzz.golang import GO_READER, build
from tests.fuzz.soak import soak
from tests.fuzz.targets import TARGETS, Target

each = pytest.mark.parametrize("name", TARGETS)


@pytest.fixture(scope="module", autouse=True)
def go(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Go's opinion, where there is Go."""
    reader = build(tmp_path_factory.mktemp("go"))
    if reader is not None:
        os.environ[GO_READER] = str(reader)
        targets._go.cache_clear()
    yield
    os.environ.pop(GO_READER, None)
    targets._go.cache_clear()


@each
def test_every_input_of_the_corpus_is_read_as_promised(name: str) -> None:
    for data in corpus.seeds(name):
        TARGETS[name].run(data)


@each
def test_longest_inputs_come_to_an_end(name: str) -> None:
    """Work in proportion to the input: what were its square would not end here."""
    target = TARGETS[name]
    for data in corpus.kept(name):
        if data:
            target.run((data * (target.max_bytes * 4 // len(data) + 1))[: target.max_bytes * 4])


def inputs(target: Target) -> st.SearchStrategy[bytes]:
    """Return what may be sent: pieces of the corpus, the target's words, and anything at all between them."""
    words = st.sampled_from([word.encode("utf-8", "surrogatepass") for word in target.words])
    kept = st.sampled_from(corpus.seeds(target.name))

    def spliced(data: bytes, at: int, middle: bytes, more: int) -> bytes:
        at %= len(data) + 1
        return data[:at] + middle + data[at + more :]

    middles = st.one_of(words, st.binary(max_size=8), st.text(max_size=4).map(lambda t: t.encode("utf-8", "replace")))
    mutated = st.builds(spliced, kept, st.integers(0, 100_000), middles, st.integers(0, 20))
    return st.one_of(
        st.binary(max_size=64), st.lists(words | st.binary(max_size=3), max_size=12).map(b"".join), mutated
    )


@each
def test_any_input_is_read_as_promised(name: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(inputs(TARGETS[name]))
    def read(data: bytes) -> None:
        TARGETS[name].run(data)

    read()


@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None, reason="the fuzzer has wheels for Linux on x86-64 alone"
)
def test_fuzzer_finds_nothing_in_its_few_thousand_inputs_here_either(tmp_path: Path) -> None:
    """The same ones each time; `make soak` gives each target an hour of others."""
    (outcome,) = soak(["all"], 60, tmp_path, runs=5000)
    assert outcome.finding is None, outcome.said
    assert outcome.executions >= 1000


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="as above")
def test_fuzzer_that_finds_something_says_so_and_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a green soak would mean nothing."""
    monkeypatch.setenv("FUZZ_BROKEN", "durations")
    (outcome,) = soak(["durations"], 30, tmp_path)
    assert outcome.finding is not None
    assert outcome.finding.parent == tmp_path
    assert "planted" in outcome.said
