"""Kubernetes' rules for a set of annotations."""

from collections.abc import Mapping

from dexaflow.base.text import quoted, size_in_utf8
from dexaflow.kube.names import annotation_key_problem

__all__ = ["MAX_ANNOTATIONS_BYTES", "annotations_problem", "annotations_size_problem"]

MAX_ANNOTATIONS_BYTES = 262_144  # Kubernetes' TotalAnnotationSizeLimitB: all keys and values together, as written


def annotations_problem(annotations: Mapping[str, str]) -> str | None:
    """Return what Kubernetes would say against these annotations as a whole, as half a line, or None."""
    for key in annotations:
        problem = annotation_key_problem(key)
        if problem is not None:
            return f"{quoted(key)}: {problem}"
    return annotations_size_problem(annotations)


def annotations_size_problem(annotations: Mapping[str, str]) -> str | None:
    """Return what is wrong with the size of these annotations, or None. A lone surrogate counts as three bytes."""
    total = sum(size_in_utf8(key) + size_in_utf8(value) for key, value in annotations.items())
    if total <= MAX_ANNOTATIONS_BYTES:
        return None
    return f"keys and values take {total} bytes together, and at most {MAX_ANNOTATIONS_BYTES} are allowed"
