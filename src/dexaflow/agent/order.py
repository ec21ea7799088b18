"""What an executor hands to the spawner for one launch: one line of JSON. The token is not in it."""

import json
from dataclasses import asdict, dataclass

from dexaflow.agent.folder import is_launch_id
from dexaflow.agent.spool import MAX_LOG_BYTES

__all__ = ["Order"]


@dataclass(frozen=True, slots=True)
class Order:
    """One launch. Exactly one of `server_file` and `url` is set; `folder` is where agents keep their files."""

    launch_id: str
    attempt_id: str
    folder: str
    server_file: str = ""
    url: str = ""
    max_log_bytes: int = MAX_LOG_BYTES

    def __post_init__(self) -> None:
        if not is_launch_id(self.launch_id):
            raise ValueError(f"not a launch id: {self.launch_id!r}")
        if bool(self.server_file) == bool(self.url):
            raise ValueError("an agent is given a server file or a url, one of them")

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> "Order":
        """Return what `to_json` wrote."""
        return cls(**json.loads(text))
