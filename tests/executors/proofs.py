"""Proofs for tests of what comes after the gate: an admitted attempt, its launch, its token."""

import secrets
import time
import uuid
from dataclasses import dataclass

from dexaflow.admission import results
from dexaflow.admission.results import Admitted
from dexaflow.executors.ports import Launch
from dexaflow.model.attempt import Attempt
from dexaflow.model.dags import TaskSpec
from dexaflow.model.execution import Execution, Resources
from dexaflow.policy import checked
from dexaflow.policy.checked import Checked
from dexaflow.tokens.keys import SigningKey, generate
from dexaflow.tokens.launch import Launched
from dexaflow.tokens.mint import Minter

__all__ = ["Proofs", "admitted"]


def admitted(attempt_id: str = "") -> Admitted:
    """Return an attempt that passed everything, as the gate would."""
    task = TaskSpec(task_id="t", operator="bash", bash_command="true")
    attempt = Attempt(attempt_id or secrets.token_hex(8), "acme", "nightly", "run-1", "t", 1, task)
    passed = Checked(
        attempt, "", Resources(), Execution(), (), service_account_chosen=False, own_placement=False, seal=checked._SEAL
    )
    return Admitted(passed, Execution(), (), (), 0.0, dedicated=False, seal=results._SEAL)


@dataclass(frozen=True)
class Proofs:
    """Makes launches as the line would."""

    key: SigningKey
    minter: Minter

    @classmethod
    def fresh(cls) -> "Proofs":
        key = generate()
        return cls(key, Minter(key, time.monotonic))

    def launch(self) -> Launch:
        proof = admitted()
        launched = Launched.written(proof, str(uuid.uuid4()), term=1)
        return Launch(proof, self.minter.mint(proof, launched), launched)
