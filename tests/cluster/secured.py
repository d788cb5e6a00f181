"""Clusters whose nodes prove who they are, and whose clients log in."""

import os
import ssl
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from penstock.client import Endpoint
from penstock.client.access import AccessAdmin
from penstock.client.connection import BrokerConnection, connect
from penstock.client.connection_security import LoginFailed
from penstock.client.endpoint import ClientError
from penstock.core.metadata.access import (
    ANY_HOST,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from penstock.core.metadata.topic_names import METADATA_TOPIC
from penstock.core.model import NodeId
from penstock.core.protocol import Message
from penstock.core.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.security.certificates import create_authority, create_node_certificate
from penstock.security.key_services import KeyringKeys
from tests.cluster.stage import SETTINGS
from tests.support.clusters import ClusterProcesses, until

HOSTS = ("localhost", "127.0.0.1")
RECOVERY_SECONDS = 60.0
NOW_MS = 1_794_997_800_000
# Some full segments, and a reseal of them that takes a while.
SEGMENT_BYTES = 32_768
RESEAL_BYTES_PER_SECOND = 200_000
ADMIN, WORKER = "admin", "worker"
READ, WRITE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE


class ProvenCluster(ClusterProcesses):
    """Nodes with a certificate each."""

    def __init__(self, root: Path, count: int = 3) -> None:
        self.certificates = root / "certs"
        create_authority(self.certificates, "nodes")
        for number in range(1, count + 1):
            create_node_certificate(self.certificates, NodeId(number), HOSTS)
        super().__init__(root, *SETTINGS, count=count)

    def settings_of(self, number: int) -> list[str]:
        return [*super().settings_of(number), *self.tls(f"node-{number}")]

    def tls(self, name: str) -> list[str]:
        files = self.certificates / name
        return [
            "security.peers=tls",
            f"security.tls.certificate={files}.pem",
            f"security.tls.key={files}.key",
            f"security.tls.authority={self.certificates}/ca.pem",
        ]

    def renew(self, number: int) -> None:
        """Put a new certificate in the place of a node's, as `mv` does it: key and certificate one by one."""
        fresh = self.certificates / "fresh"
        fresh.mkdir(exist_ok=True)
        for name in ("ca.pem", "ca.key"):
            if not (fresh / name).exists():
                os.link(self.certificates / name, fresh / name)
        for file in create_node_certificate(fresh, NodeId(number), HOSTS):
            os.replace(file, self.certificates / file.name)

    def lines_of(self, number: int, event: str) -> list[str]:
        return [line for line in self.nodes[number].events.read_text().splitlines() if event in line]


def allow(
    user: str, name: str, operation: AclOperation, kind: ResourceType = ResourceType.TOPIC
) -> AclBinding:
    return AclBinding(
        kind, PatternType.PREFIXED, name, f"User:{user}", ANY_HOST, operation, AclPermission.ALLOW
    )


class SecuredCluster(ProvenCluster):
    """Nodes that ask everybody for a password, over TLS, and encrypt what they store under a shared keyring.

    `worker` may use topics and groups of the load.
    """

    def __init__(self, root: Path, count: int = 3) -> None:
        self.keyring = KeyringKeys(str(root / "keyring"))
        self.keyring.create(NOW_MS)
        self.password_file = root / "password"
        self.password_file.write_text(f"{ADMIN}-password\n")
        self.password_file.chmod(0o600)
        super().__init__(root, count)
        self.login = self.login_of(WORKER)

    def settings_of(self, number: int) -> list[str]:
        return [
            *super().settings_of(number),
            "listen.protocol=SASL_SSL",
            "security.enabled=true",
            f"security.super_users={ADMIN}",
            f"security.admin_user={ADMIN}",
            f"security.admin_password_file={self.password_file}",
            "security.encryption.enabled=true",
            f"security.encryption.keyring={self.root / 'keyring'}",
            f"security.encryption.reseal_bytes_per_second={RESEAL_BYTES_PER_SECOND}",
            f"storage.segment_bytes={SEGMENT_BYTES}",
        ]

    def login_of(self, user: str, password: str | None = None) -> dict[str, str]:
        """What a user sets; by default its password is named after it."""
        return {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": f"{user}-password" if password is None else password,
            "ssl.ca.location": str(self.certificates / "ca.pem"),
        }

    def endpoint(self, number: int, user: str = ADMIN, password: str | None = None) -> Endpoint:
        host, port = self.address(number)
        return Endpoint(f"{host}:{port}", self.login_of(user, password))

    def admin(self, number: int) -> AccessAdmin:
        """Manages users and rules through one node."""
        return AccessAdmin(self.endpoint(number))

    def start(self) -> "SecuredCluster":
        super().start()
        until(self._can_administrate, "the administrator can log in")
        admin = self.admin(1)
        admin.set_password(WORKER, f"{WORKER}-password")
        admin.create_acls(
            [
                *(allow(WORKER, "watched", each) for each in (READ, WRITE, CREATE)),
                *(allow(WORKER, group, READ, ResourceType.GROUP) for group in ("readers", "judge")),
            ]
        )
        self.await_everywhere(lambda number: self.can_log_in(number, WORKER), "knows the worker")
        return self

    def await_everywhere(self, look: Callable[[int], bool], what: str) -> None:
        """Wait until it is so at every node."""
        for number in self.nodes:
            until(partial(look, number), f"node {number} {what}", RECOVERY_SECONDS)

    def _can_administrate(self) -> bool:
        return all(self.can_log_in(number, ADMIN) for number in self.nodes)

    def can_log_in(self, number: int, user: str, password: str | None = None) -> bool:
        try:
            connect(self.endpoint(number, user, password)).close()
        except LoginFailed:
            return False
        return True

    def rules(self, number: int, user: str) -> list[AclBinding]:
        """The rules for a user that a node knows."""
        return self.admin(number).acls(AclFilter(principal=f"User:{user}"))

    def shown_certificate(self, number: int) -> str:
        """What a node shows to clients that connect now."""
        return ssl.get_server_certificate(self.address(number))

    def _ask(self, number: int, request: Message) -> Any:
        """OSError if the node cannot be asked, as where nobody logs in."""
        connection: BrokerConnection
        try:
            with closing(connect(self.endpoint(number))) as connection:
                return connection.ask(request)
        except ClientError as error:
            raise OSError(str(error)) from None

    def metadata(self, number: int, topics: Sequence[str] | None = None) -> MetadataResponse:
        asked = None if topics is None else tuple(MetadataRequestTopic(name=topic) for topic in topics)
        answer: MetadataResponse = self._ask(
            number, MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        )
        return answer

    def _quorum_leader(self, number: int) -> int:
        partition = DescribeQuorumRequestPartition(partition_index=0)
        topic = DescribeQuorumRequestTopic(topic_name=METADATA_TOPIC, partitions=(partition,))
        answer = self._ask(number, DescribeQuorumRequest(topics=(topic,)))
        return int(answer.topics[0].partitions[0].leader_id)
