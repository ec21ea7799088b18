"""The server's configuration: one typed schema, YAML and environment.

`load_config` gives a `Config` that is complete and valid, or raises every problem at once. `schema.py` is the only list
of keys; the reference page (`reference`) is printed from it.
"""

from dexaflow.config.loading import load_config
from dexaflow.config.reference import reference
from dexaflow.config.schema import Config

__all__ = ["Config", "load_config", "reference"]
