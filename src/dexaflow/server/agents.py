"""The agents' door of the API (`api.agent_routes.Reports`), leading to the reports of this control plane."""

from dexaflow.api.agent_routes import Beat, Finish, Gone, Started
from dexaflow.reports.handling import AgentReports
from dexaflow.tokens.token import Claims
from dexaflow.tokens.verify import Renewer

__all__ = ["AgentDesk"]


class AgentDesk:
    """Hands what agents say on, and gives a live one its next token."""

    def __init__(self, reports: AgentReports, renewer: Renewer, *, heartbeat_seconds: float) -> None:
        self._reports = reports
        self._renewer = renewer
        self._heartbeat_seconds = heartbeat_seconds

    async def started(self, claims: Claims, launch_id: str, pid: int, host: str) -> Started | Gone:
        """See `Reports.started`."""
        work = await self._reports.started(claims.attempt_id, launch_id, pid=pid, host=host)
        return Gone() if work is None else Started(work, self._heartbeat_seconds)

    async def heartbeat(self, claims: Claims) -> Beat | Gone:
        """See `Reports.heartbeat`: a token is renewed only while its attempt lives."""
        beat = await self._reports.heartbeat(claims.attempt_id, claims.launch_id)
        return Gone() if beat is None else Beat(self._renewer.renew(claims).reveal(), beat.stop)

    async def log(self, claims: Claims, offset: int, data: bytes) -> int | Gone:
        """See `Reports.log`."""
        size = await self._reports.append_log(claims.attempt_id, claims.launch_id, offset, data)
        return Gone() if size is None else size

    async def finished(self, claims: Claims, finish: Finish) -> Gone | None:
        """See `Reports.finished`."""
        heard = await self._reports.finished(
            claims.attempt_id,
            claims.launch_id,
            succeeded=finish.succeeded,
            exit_code=finish.exit_code,
            reason=finish.reason,
            result=finish.result,
            log_offset=finish.log_offset,
            log_tail=finish.log_tail,
        )
        return None if heard else Gone()
