"""Files laid out as Kubernetes mounts them."""

import os
from pathlib import Path

__all__ = ["mounted", "put_version"]


def mounted(folder: Path, content: bytes, version: str = "1") -> Path:
    """Lay a file out: token -> ..data/token, ..data -> ..<version>."""
    put_version(folder, content, version)
    path = folder / "token"
    path.symlink_to("..data/token")
    return path


def put_version(folder: Path, content: bytes, version: str) -> None:
    """Swap in another version of it."""
    (folder / f"..{version}").mkdir()
    (folder / f"..{version}" / "token").write_bytes(content)
    (folder / "..data_tmp").symlink_to(f"..{version}")
    os.replace(folder / "..data_tmp", folder / "..data")
