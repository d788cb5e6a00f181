"""How many connections a second an address may open, and who is behind those of the gateway."""

from pathlib import Path

import pytest

from penstock.client.connection import BrokerConnection
from penstock.client.endpoint import Disconnected
from tests.integration.security.conftest import Issuer
from tests.integration.security_gateway.conftest import SecuredGateway, can_log_in, secured_settings
from tests.support.clusters import until
from tests.support.nodes import NodeProcess


def test_callers_of_the_gateway_are_not_counted_as_one_address(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path / "jwks.json")
    node = NodeProcess(tmp_path / "data", *secured_settings(tmp_path, issuer)).start()
    try:
        gate = SecuredGateway(node, issuer)
        until(lambda: can_log_in(gate), "the administrator has its password")
        keys = [gate.key(f"user-{number}") for number in range(4)]
        # From now on every connection that is counted waits longer than clients do.
        gate.admin.alter_quotas((("ip", None),), {"connection_creation_rate": 0.01})

        statuses = [gate.ask("GET", "/v1/topics", key).status_code for key in keys]

        assert statuses == [200] * len(keys)
        host, port = node.kafka.rsplit(":", 1)
        with pytest.raises(Disconnected, match="no response in time"):
            BrokerConnection((host, int(port)), request_seconds=1)
    finally:
        node.kill()
