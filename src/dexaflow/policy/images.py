"""Image references, parsed and normalised as Docker does, and the allowlist of them (R2.6)."""

import re
from dataclasses import dataclass

__all__ = ["ImagePattern", "ImageReference"]

_DOMAIN_PART = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = re.compile(rf"(?:{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*|\[[0-9a-fA-F:.]+\])(?::[0-9]{{1,5}})?", re.ASCII)
_PATH_PART = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,128}", re.ASCII)
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_IDENTIFIER = re.compile(r"[0-9a-f]{64}", re.ASCII)
_HUB = "docker.io"
_MAX_NAME = 255


def _is_registry(first: str) -> bool:
    """Docker's rule for the part before the first slash: it is a host, not a part of a path."""
    return "." in first or ":" in first or first == "localhost" or first.lower() != first


def _registry(domain: str) -> str:
    lowered = domain.lower()  # host names are
    return _HUB if lowered == "index.docker.io" else lowered


def _bad(text: str, what: str) -> ValueError:
    return ValueError(f"{text[:80]!r} {what}; write it as registry/path:tag or registry/path@sha256:...")


def _split(text: str) -> tuple[str, str | None, str | None]:
    """Return name, tag and digest, each checked but for the name's parts. Raises `ValueError`."""
    name, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise _bad(text, "has a digest that is not one")
    if at and digest.startswith("sha256:") and not _SHA256.fullmatch(digest):
        raise _bad(text, "has a sha256 digest that is not 64 lower-case hex digits")
    head, colon, tag = name.rpartition(":")
    if colon and "/" not in tag:
        if not _TAG.fullmatch(tag):
            raise _bad(text, "has a tag that is not one")
        return head, tag, digest or None
    return name, None, digest or None


def _path(text: str, path: str) -> tuple[str, ...]:
    parts = tuple(path.split("/"))
    if not all(_PATH_PART.fullmatch(part) for part in parts):
        raise _bad(text, "has a name that is not one (lower-case letters, digits, and . _ - between them)")
    return parts


@dataclass(frozen=True, slots=True)
class ImageReference:
    """One image: `alpine` is registry `docker.io`, path `library/alpine`, tag `latest`."""

    registry: str  # host, and its port where one is written
    path: tuple[str, ...]
    tag: str | None  # None where only a digest is given
    digest: str | None

    @classmethod
    def parse(cls, text: str) -> "ImageReference":
        """Return the normalised reference. Raises `ValueError`, one line."""
        if _IDENTIFIER.fullmatch(text):
            raise _bad(text, "is an image id, not a name")
        name, tag, digest = _split(text)
        first, slash, rest = name.partition("/")
        if slash and _is_registry(first):
            if not _DOMAIN.fullmatch(first):
                raise _bad(text, "has a registry that is not a host")
            registry, path = _registry(first), _path(text, rest)
        else:
            registry, path = _HUB, _path(text, name)
        if registry == _HUB and len(path) == 1:
            path = ("library", *path)
        if len(registry) + 1 + len("/".join(path)) > _MAX_NAME:
            raise _bad(text, f"has a name of more than {_MAX_NAME} characters")
        if tag is None and digest is None:
            tag = "latest"
        return cls(registry, path, tag, digest)

    def __str__(self) -> str:
        name = f"{self.registry}/{'/'.join(self.path)}"
        return f"{name}{':' + self.tag if self.tag else ''}{'@' + self.digest if self.digest else ''}"


@dataclass(frozen=True, slots=True)
class ImagePattern:
    """One entry of `image_allowlist`: a registry, whole parts of a path, optionally a tag or digest.

    A single part is a registry when it has a dot or is `localhost`, with or without a port (`ghcr.io`,
    `localhost:5000`); otherwise it is an image of Docker Hub as Docker reads it (`alpine` is
    `docker.io/library/alpine`, `registry:5000` is a tag). `docker.io/acme` is everything under that path, and the
    image `docker.io/library/acme` that Docker means by it.
    """

    text: str
    registry: str
    path: tuple[str, ...]
    tag: str | None = None
    digest: str | None = None

    @classmethod
    def parse(cls, text: str) -> "ImagePattern":
        """Return the pattern of an entry. Raises `ValueError`, one line."""
        host = text.partition(":")[0] if not text.startswith("[") else text
        if "/" not in text and "@" not in text and ("." in host or host == "localhost"):
            if not _DOMAIN.fullmatch(text):
                raise _bad(text, "has a registry that is not a host")
            return cls(text, _registry(text), ())
        name, tag, digest = _split(text)
        first, slash, rest = name.partition("/")
        if slash and _is_registry(first):
            if not _DOMAIN.fullmatch(first):
                raise _bad(text, "has a registry that is not a host")
            return cls(text, _registry(first), _path(text, rest), tag, digest)
        path = _path(text, name)
        return cls(text, _HUB, path if len(path) > 1 else ("library", *path), tag, digest)

    def allows(self, image: ImageReference) -> bool:
        """Whether an image is under this entry.

        An entry with a tag or a digest names one image, no path below it. A tag says nothing about an image that is
        given by digest, since the digest is what runs.
        """
        if image.registry != self.registry:
            return False
        if self.tag is None and self.digest is None:
            under = image.path[: len(self.path)] == self.path
            return under or (self.registry == _HUB and len(self.path) == 1 and image.path == ("library", *self.path))
        path = ("library", *self.path) if self.registry == _HUB and len(self.path) == 1 else self.path
        if image.path != path:
            return False
        if self.digest is not None:
            return image.digest == self.digest
        return image.digest is None and image.tag == self.tag
