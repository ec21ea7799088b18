"""The reference page of all keys, printed from the schema: `docs/configuration.md`."""

from dexaflow.config.environment import variable
from dexaflow.config.loading import all_keys
from dexaflow.config.schema import Config

__all__ = ["reference"]

_HEAD = """\
# Configuration

<!-- Printed by `dexaflow config reference`; edit src/dexaflow/config/schema.py. -->

The server reads one YAML file (`dexaflow lite --config FILE`) and environment variables; the environment wins. The
variable of a key is its name in capitals, with `DEXAFLOW_` before it and `__` for each dot. A variable that sets a
list or a mapping holds YAML or JSON: `DEXAFLOW_EXECUTION_ALLOWLIST__FIELDS='["labels"]'`.

Durations are written with their unit: `500ms`, `30s`, `15m`, `1m30s`, `30d`. Relative paths start at the folder of
the configuration file, without one at the current directory. A key that is left out, or `null`, is unset; `[]` is a
list that allows none; a key with nothing behind it is an error, since something was meant to stand there.

Unknown keys, keys given twice, wrong types, values out of range and files that cannot be used stop the server at
boot. `dexaflow config check FILE` lists every problem, a line each: the key, what is wrong, what to write.

```yaml
execution:
  admission:
    webhook:
      url: https://admission.policy.svc:8443/admit
      ca_file: /etc/dexaflow/policy-ca.crt
      token_file: /etc/dexaflow/policy-token
    timeout: 500ms
execution_allowlist:
  fields: [labels, annotations, node_selector]
  service_accounts: [dexaflow-task]
image_allowlist: [ghcr.io/acme]
history:
  retention: 30d
```
"""

_TAIL = """\
`DEXAFLOW_URL` and `DEXAFLOW_TOKEN` belong to the command line: where the server is, and the token for it. They are no
keys of this configuration. Any other `DEXAFLOW_` variable with `__` in it must be one of the above.
"""


def reference() -> str:
    """Return the page, in Markdown: for each key its type, default, meaning and environment variable."""
    rows = [_HEAD, "## Keys\n"]
    for name, key in all_keys(Config):
        rows.append(
            f"### `{name}`\n\n"
            f"{key.meaning}\n\n"
            f"- Type: {key.kind.name}\n"
            f"- Default: {key.default}\n"
            f"- Environment: `{variable(name)}`\n"
        )
    rows.append("## Variables that are not configuration\n")
    rows.append(_TAIL)
    return "\n".join(rows)
