"""Images are read as Docker reads them, and allowed by registry and whole path parts (R2.6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.base.text import shown
from dexaflow.policy.images import ImagePattern, ImageReference

DIGEST = "sha256:" + "a1" * 32
OTHER_DIGEST = "sha256:" + "b2" * 32


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("alpine", "docker.io/library/alpine:latest"),
        ("alpine:3.19", "docker.io/library/alpine:3.19"),
        ("acme/etl", "docker.io/acme/etl:latest"),
        ("docker.io/alpine", "docker.io/library/alpine:latest"),
        ("index.docker.io/alpine", "docker.io/library/alpine:latest"),
        ("index.docker.io/acme/etl", "docker.io/acme/etl:latest"),
        ("localhost", "docker.io/library/localhost:latest"),
        ("localhost/x", "localhost/x:latest"),
        ("localhost:5000", "docker.io/library/localhost:5000"),
        ("localhost:5000/x", "localhost:5000/x:latest"),
        ("registry:5000/x:1", "registry:5000/x:1"),
        ("ghcr.io/acme/etl", "ghcr.io/acme/etl:latest"),
        ("ghcr.io:8443/acme/etl:1", "ghcr.io:8443/acme/etl:1"),
        (f"ghcr.io/acme/etl@{DIGEST}", f"ghcr.io/acme/etl@{DIGEST}"),
        (f"ghcr.io/acme/etl:1@{DIGEST}", f"ghcr.io/acme/etl:1@{DIGEST}"),
        (f"alpine@{DIGEST}", f"docker.io/library/alpine@{DIGEST}"),
        ("[::1]:5000/x", "[::1]:5000/x:latest"),
        ("[2001:db8::1]/x:1", "[2001:db8::1]/x:1"),
        ("GHCR.io/x", "GHCR.io/x:latest"),
        ("Acme/etl", "Acme/etl:latest"),  # an upper case word can only be a host
        ("a/b/c/d", "docker.io/a/b/c/d:latest"),
        ("a__b/c--d.e_f", "docker.io/a__b/c--d.e_f:latest"),
        ("x/" + "a" * 253, "docker.io/x/" + "a" * 253 + ":latest"),
    ],
)
def test_a_reference_is_normalised_as_docker_does(text: str, full: str) -> None:
    reference = ImageReference.parse(text)
    assert str(reference) == full
    assert ImageReference.parse(full) == reference


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "alpine ",
        "alpine\n",
        "Alpine",
        "ghcr.io/Acme/etl",
        "ghcr.io/",
        "ghcr.io//etl",
        "/etl",
        "ghcr.io/acme/../etl",
        "ghcr.io/acme/.etl",
        "ghcr.io/acme/etl-",
        "ghcr.io/a___b",
        "alpine:",
        "alpine:-x",
        "alpine:" + "x" * 129,
        "alpine:1:2",
        "alpine@",
        "alpine@sha256:abc",
        "alpine@sha256:" + "A1" * 32,
        "alpine@md5:" + "a" * 32,
        f"alpine@{DIGEST}@{DIGEST}",
        f"alpine@{DIGEST}:tag",
        "a" * 64,
        "x/" + "a" * 254,
        "https://ghcr.io/acme",
        "user@ghcr.io/acme",
        "ghcr.io:x/acme",
        "-ghcr.io/acme",
        "[::1]",
        "[::1/x",
        "a_b.c/x",
        "größe",
        "x\u200b",
        "x\ud800",
        "a/" * 50_000 + "a",
    ],
)
def test_what_is_not_a_reference_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        ImageReference.parse(text)
    message = str(caught.value)
    assert shown(message) == message
    assert len(message) < 400


@pytest.mark.parametrize(
    ("entry", "image"),
    [
        ("ghcr.io/acme", f"ghcr.io/acme/etl@{DIGEST}"),
        ("ghcr.io/acme", "ghcr.io/acme/etl"),
        ("ghcr.io/acme", "ghcr.io/acme/deep/down/etl:1"),
        ("ghcr.io/acme", "ghcr.io/acme:1"),
        ("ghcr.io", "ghcr.io/acme/etl"),
        ("ghcr.io:8443", "ghcr.io:8443/acme/etl"),
        ("localhost", "localhost/x"),
        ("localhost:5000", "localhost:5000/x"),
        ("localhost:5000/x", "localhost:5000/x/y:1"),
        ("registry:5000", "registry:5000/team/x"),
        ("[::1]:5000", "[::1]:5000/x"),
        ("[::1]:5000/x", "[::1]:5000/x"),
        ("docker.io", "alpine"),
        ("docker.io", "acme/etl"),
        ("index.docker.io", "acme/etl"),
        ("docker.io/acme", "acme/etl:1"),
        ("docker.io/alpine", "alpine:3"),
        ("docker.io/library", "alpine"),
        ("docker.io/library/alpine", "alpine"),
        ("alpine", "alpine:3"),
        ("alpine", f"docker.io/library/alpine@{DIGEST}"),
        ("acme/etl", "docker.io/acme/etl"),
        ("redis:7", "redis:7"),
        ("redis:7", "docker.io/library/redis:7"),
        ("docker.io/redis:7", "redis:7"),
        ("redis:latest", "redis"),
        ("ghcr.io/acme/etl:1.4", "ghcr.io/acme/etl:1.4"),
        (f"ghcr.io/acme/etl@{DIGEST}", f"ghcr.io/acme/etl@{DIGEST}"),
        (f"ghcr.io/acme/etl@{DIGEST}", f"ghcr.io/acme/etl:any@{DIGEST}"),
        (f"ghcr.io/acme/etl:1@{DIGEST}", f"ghcr.io/acme/etl:1@{DIGEST}"),
    ],
)
def test_an_entry_allows_what_is_below_it(entry: str, image: str) -> None:
    assert ImagePattern.parse(entry).allows(ImageReference.parse(image))


@pytest.mark.parametrize(
    ("entry", "image"),
    [
        ("ghcr.io/acme", "ghcr.io/acmeco/etl"),
        ("ghcr.io/acme", "ghcr.io:8443/acme/etl"),
        ("ghcr.io:8443/acme", "ghcr.io/acme/etl"),
        ("ghcr.io/acme", "ghcr.io/other/acme"),
        ("ghcr.io/acme", "ghcr.io.evil.com/acme/etl"),
        ("ghcr.io/acme", "evil.com/ghcr.io/acme/etl"),
        ("ghcr.io/acme", "acme/etl"),
        ("ghcr.io/acme/etl", "ghcr.io/acme"),
        ("ghcr.io", "ghcr.io:443/acme"),
        ("ghcr.io", "ghcr.io.evil.com/x"),
        ("ghcr.io", "ghcr.io"),  # Docker takes the bare word for docker.io/library/ghcr.io
        ("localhost:5000", "localhost:5001/x"),
        ("localhost", "localhost:5000/x"),
        ("localhost", "localhost"),
        ("docker.io/acme", "acmeco/etl"),
        ("docker.io/acme/etl", "docker.io/library/acme/etl"),
        ("alpine", "alpine2"),
        ("alpine", "acme/alpine"),
        ("alpine", "ghcr.io/library/alpine"),
        ("library", "alpine"),
        ("redis:7", "redis"),
        ("redis:7", "redis:7.2"),
        ("redis:7", "redis/x:7"),
        ("ghcr.io/acme/etl:1.4", "ghcr.io/acme/etl"),
        ("ghcr.io/acme/etl:1.4", "ghcr.io/acme/etl/more:1.4"),
        ("ghcr.io/acme/etl:1.4", f"ghcr.io/acme/etl:1.4@{DIGEST}"),  # the digest decides what is pulled
        ("ghcr.io/acme/etl:latest", f"ghcr.io/acme/etl@{DIGEST}"),
        (f"ghcr.io/acme/etl@{DIGEST}", "ghcr.io/acme/etl"),
        (f"ghcr.io/acme/etl@{DIGEST}", f"ghcr.io/acme/etl@{OTHER_DIGEST}"),
        (f"ghcr.io/acme/etl:1@{DIGEST}", f"ghcr.io/acme/etl:2@{DIGEST}"),
        (f"ghcr.io/acme/etl:1@{DIGEST}", f"ghcr.io/acme/etl@{DIGEST}"),
        ("[::1]:5000", "[::1]:5001/x"),
    ],
)
def test_an_entry_allows_nothing_beside_it(entry: str, image: str) -> None:
    assert not ImagePattern.parse(entry).allows(ImageReference.parse(image))


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("", "a part is empty"),
        ("ghcr.io/acme/", "needless end"),
        ("ghcr.io/acme/*", "needless end"),
        ("*", "needless end"),
        ("https://ghcr.io/acme", "URL"),
        ("ghcr.io:latest", "port 'latest' is no number"),
        ("ghcr.io/Acme", "lower case"),
        ("Acme", "lower case"),
        ("ghcr.io/acme ", "no part"),
        ("ghcr.io/ac\u202eme", r"\u202e"),
        ("ghcr.io/acme@sha256:1", "no digest"),
        ("a b", "no part"),
    ],
)
def test_what_is_no_entry_is_refused_with_what_is_wrong(entry: str, says: str) -> None:
    with pytest.raises(ValueError) as caught:
        ImagePattern.parse(entry)
    assert says in str(caught.value)
    assert shown(str(caught.value)) == str(caught.value)


@pytest.mark.parametrize(
    "image",
    [
        "jo:s3cret@ghcr.io/acme/etl",
        "s3cret@ghcr.io/acme/etl",
        "https://jo:s3cret@ghcr.io/acme/etl",
        "https:jo:s3cret@ghcr.io",
        "//jo:s3cret@ghcr.io",
        f"jo:s3cret@ghcr.io/acme/etl@{DIGEST}",
        f"jo:s3cret@ghcr.io/{'x' * 5000}",
    ],
)
def test_user_info_before_an_image_is_refused_and_not_quoted(image: str) -> None:
    """Whoever reads a DAG's errors need not know its passwords."""
    with pytest.raises(ValueError, match="stands user info, or behind it no digest") as caught:
        ImageReference.parse(image)
    assert "s3cret" not in str(caught.value)


WORDS = st.sampled_from(["acme", "etl", "a.b", "x--y", "library", "docker.io", "localhost", "1"])
HOSTS = st.sampled_from(["docker.io", "ghcr.io", "ghcr.io:8443", "localhost", "localhost:5000", "[::1]:1", "Host"])
PATHS = st.lists(WORDS, min_size=1, max_size=4)
REFERENCES = st.builds(
    lambda host, path, end: f"{host}/{'/'.join(path)}{end}",
    HOSTS,
    PATHS,
    st.sampled_from(["", ":1", f"@{DIGEST}", f":1@{DIGEST}"]),
)


@given(REFERENCES)
def test_an_image_is_allowed_by_its_registry_by_each_of_its_beginnings_and_by_itself(text: str) -> None:
    image = ImageReference.parse(text)
    assert ImageReference.parse(str(image)) == image
    assert ImagePattern.parse(str(image)).allows(image)
    for parts in range(1, len(image.path) + 1):
        below = "/".join(image.path[:parts])
        assert ImagePattern.parse(f"{image.registry}/{below}").allows(image)
        assert not ImagePattern.parse(f"{image.registry}/{below}x").allows(image)
        assert not ImagePattern.parse(f"other.io/{below}").allows(image)


@given(REFERENCES | st.text(max_size=40) | st.text("aA./:@[]-_*", max_size=20))
def test_any_text_is_an_image_or_a_clear_error(text: str) -> None:
    for parse in (ImageReference.parse, ImagePattern.parse):
        try:
            parse(text)
        except ValueError as error:
            assert shown(str(error)) == str(error)
