"""The reference page is printed from the schema, and `docs/` holds the print."""

from pathlib import Path

from dexaflow.config import Config, reference
from dexaflow.config.loading import all_keys

REQUIRED = """
execution.admission.webhook.url execution.admission.webhook.ca_file execution.admission.webhook.token_file
execution.admission.timeout execution.admission.fail_open execution.admission.hooks execution.admission.recheck
execution_allowlist.fields execution_allowlist.priority_classes execution_allowlist.service_accounts image_allowlist
execution.unit.cpu execution.unit.memory execution.defaults.resources execution.defaults.service_account
execution.defaults.image tenants history.retention
"""


def test_every_key_of_the_requirements_is_there() -> None:
    """Section 2."""
    assert set(REQUIRED.split()) <= {name for name, _ in all_keys(Config)}


def test_every_key_has_its_entry_with_type_default_and_variable() -> None:
    page = reference()

    for name, key in all_keys(Config):
        assert f"### `{name}`" in page
        assert key.meaning.endswith(".")
        assert f"- Environment: `DEXAFLOW_{name.upper().replace('.', '__')}`" in page


def test_the_page_in_docs_is_the_print() -> None:
    """When this fails: `dexaflow config reference > docs/configuration.md`."""
    page = Path(__file__).parents[2] / "docs" / "configuration.md"

    assert page.read_text() == reference()
