"""The replicated machine of the cluster's metadata."""

from collections.abc import Iterable
from typing import assert_never

from penstock.core.metadata import commands
from penstock.core.metadata.apply import apply, replay
from penstock.core.metadata.decide_access import (
    add_first_administrator,
    alter_client_quotas,
    alter_scram_credentials,
    create_acls,
    create_api_key,
    delete_acls,
    delete_api_key,
    set_delegation_secret,
)
from penstock.core.metadata.decide_brokers import (
    allocate_producer_ids,
    drain_broker,
    fence_broker,
    form_cluster,
    register_broker,
    report_replicas,
    stop_broker,
    unfence_broker,
    unregister_broker,
    update_features,
)
from penstock.core.metadata.decide_configs import alter_configs, incremental_alter_configs
from penstock.core.metadata.decide_partitions import change_partition, depose_leader, resign_replica
from penstock.core.metadata.decide_reassignment import reassign_partition, widen_internal_topics
from penstock.core.metadata.decide_topics import create_topic, delete_topic
from penstock.core.metadata.decision import ControllerConfig, MetadataDecision, error_decision
from penstock.core.metadata.elections import balance_leaders, elect_leader, elect_reported
from penstock.core.metadata.image import EMPTY_IMAGE, MetadataImage
from penstock.core.metadata.levels import (
    HIGHEST_LEVEL,
    LOWEST_LEVEL,
    METADATA_VERSION,
    command_level,
    stored_level,
)
from penstock.core.metadata.placement import create_partitions
from penstock.core.metadata.records import Fact, FeatureLevelSet
from penstock.core.model import ApiError, ErrorKind, Instant

_NOTHING_ELSE = ControllerConfig()


def problem_with_level(command: commands.Command, level: int) -> ApiError | None:
    """The error if nodes of a cluster at this level of `metadata.version` may not know the command."""
    needed = command_level(command) if level < HIGHEST_LEVEL else LOWEST_LEVEL
    if needed <= max(level, LOWEST_LEVEL):
        return None
    detail = f"{type(command).__name__} needs {METADATA_VERSION} {needed}, and the cluster is at {level}"
    return ApiError(ErrorKind.INVALID_FEATURE_LEVEL, detail)


class MetadataMachine:
    """Decides what becomes of the cluster, and holds what has.

    The controller decides on one machine, to which facts are applied when they are
    appended; brokers keep another, to which facts are applied when they are committed.
    Both hold images, which never change, so that either may be copied for nothing.
    """

    __slots__ = ("_config", "image")

    def __init__(self, image: MetadataImage = EMPTY_IMAGE, around: ControllerConfig = _NOTHING_ELSE) -> None:
        self.image = image
        self._config = around

    def copy(self) -> "MetadataMachine":
        return MetadataMachine(self.image, self._config)

    def decide(self, command: commands.Command, now: Instant) -> MetadataDecision:  # noqa: ARG002 - the shape of machines
        """Return what `command` leads to in the current image, without changing it. Time is not used yet."""
        level = self.image.feature_level(METADATA_VERSION)
        if level == HIGHEST_LEVEL:
            return self._decide(command)
        error = problem_with_level(command, level)
        if error is not None:
            return error_decision(error.kind, error.detail)
        decision = self._decide(command)
        for fact in decision.facts:
            if isinstance(fact, FeatureLevelSet) and fact.name == METADATA_VERSION:
                level = fact.level
            assert stored_level(fact) <= max(level, LOWEST_LEVEL), (
                f"nodes at level {level} cannot read {fact}"
            )
        return decision

    def _decide(self, command: commands.Command) -> MetadataDecision:
        if isinstance(command, commands.BrokerCommand):
            return self._decide_broker(command)
        if isinstance(command, commands.ConfigCommand):
            return self._decide_config(command)
        if isinstance(command, commands.TopicCommand):
            return self._decide_topic(command)
        if isinstance(command, commands.PartitionCommand):
            return self._decide_partition(command)
        if isinstance(command, commands.AccessCommand):
            return self._decide_access(command)
        return self._decide_cluster(command)

    def _decide_cluster(self, command: commands.ClusterCommand) -> MetadataDecision:
        match command:
            case commands.BootstrapCluster():
                return form_cluster(self.image, command)
            case commands.UpdateFeatures():
                return update_features(self.image, command)
            case commands.AllocateProducerIds():
                return allocate_producer_ids(self.image, command)
            case commands.AddFirstAdministrator():
                return add_first_administrator(self.image, command, self._config)
            case _:
                assert_never(command)

    def apply(self, fact: Fact) -> None:
        """Apply a fact; also the way to recover."""
        self.image = apply(self.image, fact)

    def replay(self, history: Iterable[Fact]) -> None:
        self.image = replay(self.image, history)

    def expire(self, now: Instant) -> tuple[Fact, ...]:  # noqa: ARG002 - the shape of machines
        """Nothing here expires by itself: silent brokers are fenced by command."""
        return ()

    def next_deadline(self) -> Instant | None:
        return None

    def _decide_broker(self, command: commands.BrokerCommand) -> MetadataDecision:
        match command:
            case commands.RegisterBroker():
                return register_broker(self.image, command, self._config)
            case commands.FenceBroker():
                return fence_broker(self.image, command, self._config)
            case commands.ReportReplicas():
                return report_replicas(self.image, command, self._config)
            case commands.UnfenceBroker():
                return unfence_broker(self.image, command, self._config)
            case commands.BeginControlledShutdown():
                return stop_broker(self.image, command, self._config)
            case commands.DrainBroker():
                return drain_broker(self.image, command, self._config)
            case commands.UnregisterBroker():
                return unregister_broker(self.image, command, self._config)
            case _:
                assert_never(command)

    def _decide_access(self, command: commands.AccessCommand) -> MetadataDecision:
        match command:
            case commands.CreateAcls():
                return create_acls(self.image, command, self._config)
            case commands.DeleteAcls():
                return delete_acls(self.image, command)
            case commands.AlterScramCredentials():
                return alter_scram_credentials(self.image, command, self._config)
            case commands.CreateApiKey():
                return create_api_key(self.image, command, self._config)
            case commands.DeleteApiKey():
                return delete_api_key(self.image, command)
            case commands.SetDelegationSecret():
                return set_delegation_secret(self.image, command)
            case commands.AlterClientQuotas():
                return alter_client_quotas(self.image, command, self._config)
            case _:
                assert_never(command)

    def _decide_config(self, command: commands.ConfigCommand) -> MetadataDecision:
        match command:
            case commands.AlterConfigs():
                return alter_configs(self.image, command, self._config)
            case commands.IncrementalAlterConfigs():
                return incremental_alter_configs(self.image, command, self._config)
            case _:
                assert_never(command)

    def _decide_topic(self, command: commands.TopicCommand) -> MetadataDecision:
        match command:
            case commands.CreateTopic():
                return create_topic(self.image, command, self._config)
            case commands.DeleteTopic():
                return delete_topic(self.image, command, self._config)
            case commands.CreatePartitions():
                return create_partitions(self.image, command, self._config)
            case _:
                assert_never(command)

    def _decide_replica(self, command: commands.ReplicaCommand) -> MetadataDecision:
        match command:
            case commands.AlterPartition():
                return change_partition(self.image, command, self._config)
            case commands.ResignReplica():
                return resign_replica(self.image, command, self._config)
            case commands.DeposeLeader():
                return depose_leader(self.image, command, self._config)
            case _:
                assert_never(command)

    def _decide_partition(self, command: commands.PartitionCommand) -> MetadataDecision:
        if isinstance(command, commands.ReplicaCommand):
            return self._decide_replica(command)
        match command:
            case commands.ElectLeader():
                return elect_leader(self.image, command, self._config)
            case commands.ElectReported():
                return elect_reported(self.image, command, self._config)
            case commands.BalanceLeaders():
                return balance_leaders(self.image, command, self._config)
            case commands.ReassignPartition():
                return reassign_partition(self.image, command, self._config)
            case commands.WidenInternalTopics():
                return widen_internal_topics(self.image, command, self._config)
            case _:
                assert_never(command)
