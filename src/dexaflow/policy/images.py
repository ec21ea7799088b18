"""Image references, read as Docker reads them, and the entries of the image allowlist (R2.6)."""

import re
from dataclasses import dataclass

from dexaflow.base.text import quoted

__all__ = ["ImagePattern", "ImageReference"]

DOCKER_HUB = "docker.io"
OFFICIAL = "library"  # where Docker Hub keeps the images that have no owner in their name

MAX_PATH_LENGTH = 255  # what is before it does not count, as in Docker
MAX_LENGTH = 1024  # of a whole reference: name, tag and digest are all shorter than that
_DIGEST_LENGTHS = {"sha256": 64, "sha384": 96, "sha512": 128}  # in hexadecimal digits

_PATH_PART = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
_HOST_PART = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_REGISTRY = re.compile(rf"({_HOST_PART}(?:\.{_HOST_PART})*|\[[A-Fa-f0-9:]+\])(?::([0-9]+))?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
# As `jo:password@ghcr.io/acme`, with a scheme or without; its password is for nobody who reads an error.
_USER_INFO = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:/*|/+)?[^/]*@(?!sha[0-9]+:)")
_HEX = re.compile(r"[a-f0-9]+")
_IMAGE_ID = re.compile(r"[a-f0-9]{64}")


@dataclass(frozen=True, slots=True)
class ImageReference:
    """One image in its full form: what Docker would pull. Made by `parse`."""

    registry: str  # its port is part of it: `ghcr.io`, `localhost:5000`, `[::1]:5000`; `docker.io` when none is given
    path: tuple[str, ...]  # ("library", "alpine")
    tag: str  # "latest" when neither tag nor digest is given; "" with a digest alone
    digest: str  # "sha256:..."; "" when none

    @classmethod
    def parse(cls, text: str) -> "ImageReference":
        """Return the reference that Docker makes of `text`: ``alpine`` is ``docker.io/library/alpine:latest``.

        Raises:
            ValueError: It is not a reference; one line.
        """
        reference = _read(text)
        if reference.tag or reference.digest:
            return reference
        return cls(reference.registry, reference.path, "latest", "")

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.registry}/{'/'.join(self.path)}{tag}{digest}"


@dataclass(frozen=True, slots=True)
class ImagePattern:
    """One entry of the image allowlist: a registry, whole path parts, and perhaps a tag or digest. Made by `parse`.

    How an entry is read:

    - ``ghcr.io``, ``ghcr.io:8443``, ``localhost``, ``registry:5000``, ``[::1]:5000``: a registry, all of it. A word
      without a dot is one only with a port of four or five digits; ``redis:7`` is an image and its tag, as for Docker.
    - ``ghcr.io/acme``: all below it. What comes before the first slash is a registry by Docker's rule: it holds a dot
      or a colon, or is ``localhost``. ``acme/etl`` is ``docker.io/acme/etl``.
    - ``alpine``: the official image ``docker.io/library/alpine``. ``docker.io/acme`` is all that belongs to ``acme`` on
      Docker Hub, and the official image ``acme`` that Docker means by it.
    - With a tag or a digest: that one image, normalised as Docker does. A tag allows no reference that also carries a
      digest: then the digest decides what is pulled, and the tag beside it says nothing. A digest allows any tag or
      none beside it. With both, both must be there. No tag in a reference is ``latest``.

    Registries are compared letter for letter, as Docker does.
    """

    text: str  # as the operator wrote it
    registry: str
    path: tuple[str, ...]  # (): the whole registry
    tag: str = ""
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> "ImagePattern":
        """Return the entry that `text` is.

        Raises:
            ValueError: It is no registry, path or image; one line.
        """
        if "://" in text:
            raise ValueError(f"{quoted(text)} is a URL; leave out what is before the host")
        if text.endswith("/") or "*" in text:
            raise ValueError(
                f"{quoted(text)} has a needless end; a registry or path allows all below it, as ghcr.io/acme"
            )
        if "/" not in text and _is_registry(text):
            return cls(text, DOCKER_HUB if text == "index.docker.io" else text, ())
        reference = _read(text, official="/" not in text or _is_one_image(text))
        return cls(text, reference.registry, reference.path, reference.tag, reference.digest)

    def allows(self, image: ImageReference) -> bool:
        """Whether this entry allows `image` (R2.6)."""
        if image.registry != self.registry:
            return False
        if not (self.tag or self.digest):
            below = image.path[: len(self.path)] == self.path
            return below or (self._is_word_on_hub() and image.path == (OFFICIAL, *self.path))
        if image.path != self.path or image.digest != self.digest:
            return False
        return not self.tag or image.tag == self.tag

    def _is_word_on_hub(self) -> bool:
        return self.registry == DOCKER_HUB and len(self.path) == 1

    def __str__(self) -> str:
        return self.text


def _is_registry(word: str) -> bool:
    """Whether a word without a slash is a registry. Raises `ValueError` where only its port is wrong."""
    match = _REGISTRY.fullmatch(word)
    if match is None:
        host, colon, port = word.partition(":")
        if colon and "@" not in word and ("." in host or host == "localhost"):
            raise ValueError(f"{quoted(word)} is a registry, and its port {quoted(port)} is no number")
        return False
    host, port = match[1], match[2] or ""
    return host == "localhost" or "." in host or host.startswith("[") or len(port) >= 4


def _is_one_image(text: str) -> bool:
    """Whether an entry with a slash carries a tag or a digest."""
    return "@" in text or ":" in text.rpartition("/")[2]


def _read(text: str, *, official: bool = True) -> ImageReference:
    """Return the reference that `text` is, no tag added.

    Args:
        official: Put a single word on Docker Hub under ``library``.
    """
    user_info = _USER_INFO.match(text)
    if user_info:
        rest = f"...{text[user_info.end() - 1 :]}"
        raise ValueError(
            f"{quoted(rest)} is not an image reference: before its @ stands user info, or behind it no digest;"
            " write sha256: and 64 hexadecimal digits, and no user info"
        )
    what = f"{quoted(text)} is not an image reference"
    if len(text) > MAX_LENGTH:
        raise ValueError(f"{what}: it is too long")
    if _IMAGE_ID.fullmatch(text):
        raise ValueError(f"{what}: it looks like the id of an image; write its name")
    name, at, digest = text.partition("@")
    before, slash, last = name.rpartition("/")
    last, colon, tag = last.partition(":") if slash or not name.startswith("[") else (last, "", "")
    name = f"{before}{slash}{last}"
    first, slash, rest = name.partition("/")
    if not slash or not (first == "localhost" or "." in first or ":" in first or first != first.lower()):
        first, rest = DOCKER_HUB, name
    elif first == "index.docker.io":
        first = DOCKER_HUB
    if not _REGISTRY.fullmatch(first):
        raise ValueError(f"{what}: {quoted(first)} is no registry")
    if rest != rest.lower():
        raise ValueError(f"{what}: its path must be lower case")
    path = tuple(rest.split("/"))
    for part in path:
        if not _PATH_PART.fullmatch(part):
            raise ValueError(f"{what}: {quoted(part)} is no part of a path" if part else f"{what}: a part is empty")
    if first == DOCKER_HUB and len(path) == 1 and official:
        path = (OFFICIAL, *path)
    if len("/".join(path)) > MAX_PATH_LENGTH:
        raise ValueError(f"{what}: its path is longer than {MAX_PATH_LENGTH}")
    if colon and not _TAG.fullmatch(tag):
        raise ValueError(f"{what}: {quoted(tag)} is no tag")
    if at and not _is_digest(digest):
        raise ValueError(f"{what}: {quoted(digest)} is no digest; write sha256: and 64 hexadecimal digits")
    return ImageReference(first, path, tag, digest)


def _is_digest(text: str) -> bool:
    algorithm, _, encoded = text.partition(":")
    return _DIGEST_LENGTHS.get(algorithm) == len(encoded) and _HEX.fullmatch(encoded) is not None
