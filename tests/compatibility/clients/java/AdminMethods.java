import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Calls every method of Admin once or more, and prints a line for each: name, `ok` or the error, detail. */
public class AdminMethods {
    static final String TOPIC = "admin";
    static final TopicPartition P0 = new TopicPartition(TOPIC, 0);
    static final List<String> called = new ArrayList<>();

    static void step(String name, Callable<Object> call) {
        called.add(name.split(" ")[0]);
        String outcome = "ok";
        String detail;
        try {
            detail = String.valueOf(call.call());
        } catch (ExecutionException error) {
            outcome = error.getCause().getClass().getSimpleName();
            detail = String.valueOf(error.getCause().getMessage());
        } catch (Exception error) {
            outcome = error.getClass().getSimpleName();
            detail = String.valueOf(error.getMessage());
        }
        System.out.println(name + "\t" + outcome + "\t" + detail.replace('\n', ' ').replace('\t', ' '));
    }

    static ConfigResource resource(ConfigResource.Type type, String name) {
        return new ConfigResource(type, name);
    }

    static Object alter(Admin admin, ConfigResource.Type type, String name, String key, String value) throws Exception {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource(type, name), List.of(change))).all().get();
        return key + "=" + value;
    }

    static String config(Admin admin, ConfigResource.Type type, String name, String key) throws Exception {
        ConfigResource one = resource(type, name);
        return admin.describeConfigs(List.of(one)).all().get().get(one).get(key).value();
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("default.api.timeout.ms", "20000");
        settings.put("request.timeout.ms", "10000");
        settings.put("enable.metrics.push", "true");
        try (Admin first = Admin.create(settings)) {
            // Clients that connect from now on are asked for metrics.
            alter(first, ConfigResource.Type.CLIENT_METRICS, "asked", "metrics", "*");
        }
        Admin admin = Admin.create(settings);

        step("createTopics", () -> {
            admin.createTopics(List.of(new NewTopic(TOPIC, 2, (short) 1))).all().get();
            return TOPIC;
        });
        step("createTopics again", () -> admin.createTopics(List.of(new NewTopic(TOPIC, 2, (short) 1))).all().get());
        produceAndConsume(arguments[0]);
        step("listTopics", () -> admin.listTopics().names().get().contains(TOPIC));
        step("describeTopics", () -> admin.describeTopics(List.of(TOPIC)).allTopicNames().get().get(TOPIC).partitions().size());
        step("describeTopics by-id", () -> {
            Uuid id = admin.describeTopics(List.of(TOPIC)).allTopicNames().get().get(TOPIC).topicId();
            return admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id).name();
        });
        step("describeTopics unknown-id", () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(new Uuid(7, 7)))).allTopicIds().get());
        step("describeCluster", () -> admin.describeCluster().nodes().get().size());
        step("describeConfigs topic", () -> config(admin, ConfigResource.Type.TOPIC, TOPIC, "cleanup.policy"));
        step("describeConfigs broker", () -> config(admin, ConfigResource.Type.BROKER, "1", "node.id"));
        step("describeConfigs group", () -> config(admin, ConfigResource.Type.GROUP, "readers", "consumer.session.timeout.ms"));
        step("describeConfigs client-metrics", () -> config(admin, ConfigResource.Type.CLIENT_METRICS, "watched", "interval.ms"));
        step("incrementalAlterConfigs topic", () -> alter(admin, ConfigResource.Type.TOPIC, TOPIC, "retention.ms", "3600000"));
        step("incrementalAlterConfigs broker", () -> alter(admin, ConfigResource.Type.BROKER, "", "log.retention.ms", "3600000"));
        step("incrementalAlterConfigs client-metrics", () -> alter(admin, ConfigResource.Type.CLIENT_METRICS, "watched", "interval.ms", "100"));
        step("incrementalAlterConfigs group", () -> alter(admin, ConfigResource.Type.GROUP, "readers", "consumer.session.timeout.ms", "45000"));
        step("incrementalAlterConfigs refused", () -> alter(admin, ConfigResource.Type.BROKER, "", "num.replica.fetchers", "4"));
        step("incrementalAlterConfigs unknown", () -> alter(admin, ConfigResource.Type.TOPIC, TOPIC, "no.such.key", "1"));
        step("incrementalAlterConfigs wrong", () -> alter(admin, ConfigResource.Type.TOPIC, TOPIC, "retention.ms", "soon"));
        step("listConfigResources", () -> new TreeSet<>(admin.listConfigResources(Set.of(ConfigResource.Type.CLIENT_METRICS), new ListConfigResourcesOptions()).all().get().stream().map(ConfigResource::name).toList()));
        step("listClientMetricsResources", () -> admin.listClientMetricsResources().all().get().stream().map(ClientMetricsResourceListing::name).toList());
        step("describeLogDirs", () -> admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).size());
        step("describeReplicaLogDirs", () -> admin.describeReplicaLogDirs(List.of(new TopicPartitionReplica(TOPIC, 0, 1))).all().get().size());
        step("alterReplicaLogDirs", () -> admin.alterReplicaLogDirs(Map.of(new TopicPartitionReplica(TOPIC, 0, 1), "/no/such/directory")).all().get());
        step("createPartitions validate-only", () -> admin.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(3)), new CreatePartitionsOptions().validateOnly(true)).all().get());
        step("createPartitions", () -> {
            admin.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(3))).all().get();
            return 3;
        });
        step("createPartitions fewer", () -> admin.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(1))).all().get());
        step("listOffsets", () -> admin.listOffsets(Map.of(P0, OffsetSpec.latest())).all().get().get(P0).offset());
        step("listOffsets max-timestamp", () -> admin.listOffsets(Map.of(P0, OffsetSpec.maxTimestamp())).all().get().get(P0).offset());
        step("deleteRecords", () -> admin.deleteRecords(Map.of(P0, RecordsToDelete.beforeOffset(1))).all().get());
        step("electLeaders", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(P0)).partitions().get().get(P0).map(error -> error.getClass().getSimpleName()).orElse("elected"));
        step("alterPartitionReassignments", () -> admin.alterPartitionReassignments(Map.of(P0, Optional.of(new NewPartitionReassignment(List.of(99))))).all().get());
        step("alterPartitionReassignments cancel", () -> admin.alterPartitionReassignments(Map.of(P0, Optional.empty())).all().get());
        step("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments().get());
        step("listGroups", () -> admin.listGroups().all().get().stream().map(group -> group.groupId() + " " + group.type().map(Object::toString).orElse("?")).sorted().toList());
        step("listGroups of-type", () -> admin.listGroups(new ListGroupsOptions().withTypes(Set.of(org.apache.kafka.common.GroupType.CONSUMER))).all().get().size());
        step("listConsumerGroups", () -> admin.listConsumerGroups().all().get().size());
        step("describeConsumerGroups", () -> admin.describeConsumerGroups(List.of("readers")).all().get().get("readers").groupState());
        step("describeClassicGroups", () -> admin.describeClassicGroups(List.of("readers")).all().get().get("readers").state());
        step("describeClassicGroups unknown", () -> admin.describeClassicGroups(List.of("nobody")).all().get());
        step("listConsumerGroupOffsets", () -> admin.listConsumerGroupOffsets("readers").partitionsToOffsetAndMetadata().get().get(P0).offset());
        step("alterConsumerGroupOffsets", () -> admin.alterConsumerGroupOffsets("readers", Map.of(P0, new OffsetAndMetadata(1))).all().get());
        step("deleteConsumerGroupOffsets", () -> admin.deleteConsumerGroupOffsets("readers", Set.of(P0)).all().get());
        step("removeMembersFromConsumerGroup", () -> admin.removeMembersFromConsumerGroup("readers", new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("nobody")))).all().get());
        step("deleteConsumerGroups", () -> admin.deleteConsumerGroups(List.of("readers")).all().get());
        step("describeShareGroups", () -> admin.describeShareGroups(List.of("sharers")).all().get());
        step("listShareGroupOffsets", () -> admin.listShareGroupOffsets(Map.of("sharers", new ListShareGroupOffsetsSpec())).all().get());
        step("alterShareGroupOffsets", () -> admin.alterShareGroupOffsets("sharers", Map.of(P0, 1L)).all().get());
        step("deleteShareGroupOffsets", () -> admin.deleteShareGroupOffsets("sharers", Set.of(TOPIC)).all().get());
        step("deleteShareGroups", () -> admin.deleteShareGroups(List.of("sharers")).all().get());
        step("describeStreamsGroups", () -> admin.describeStreamsGroups(List.of("streamers")).all().get());
        step("listStreamsGroupOffsets", () -> admin.listStreamsGroupOffsets(Map.of("streamers", new ListStreamsGroupOffsetsSpec())).all().get());
        step("alterStreamsGroupOffsets", () -> admin.alterStreamsGroupOffsets("streamers", Map.of(P0, new OffsetAndMetadata(1))).all().get());
        step("deleteStreamsGroupOffsets", () -> admin.deleteStreamsGroupOffsets("streamers", Set.of(P0)).all().get());
        step("deleteStreamsGroups", () -> admin.deleteStreamsGroups(List.of("streamers")).all().get());
        step("describeProducers", () -> admin.describeProducers(List.of(P0)).all().get().get(P0).activeProducers().size());
        step("listTransactions", () -> admin.listTransactions().all().get());
        step("describeTransactions", () -> admin.describeTransactions(List.of("no-such-id")).all().get());
        step("abortTransaction", () -> admin.abortTransaction(new AbortTransactionSpec(P0, 4711, (short) 0, 0)).all().get());
        step("fenceProducers", () -> {
            admin.fenceProducers(List.of("fenced-id")).all().get();
            return "fenced";
        });
        step("forceTerminateTransaction", () -> {
            admin.forceTerminateTransaction("terminated-id", new TerminateTransactionOptions()).result().get();
            return "terminated";
        });
        ResourcePattern topics = new ResourcePattern(ResourceType.TOPIC, TOPIC, PatternType.LITERAL);
        AccessControlEntry entry = new AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW);
        step("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        step("createAcls", () -> admin.createAcls(List.of(new AclBinding(topics, entry))).all().get());
        step("deleteAcls", () -> admin.deleteAcls(List.of(AclBindingFilter.ANY)).all().get());
        step("createDelegationToken", () -> admin.createDelegationToken().delegationToken().get());
        step("renewDelegationToken", () -> admin.renewDelegationToken(new byte[] {1}).expiryTimestamp().get());
        step("expireDelegationToken", () -> admin.expireDelegationToken(new byte[] {1}).expiryTimestamp().get());
        step("describeDelegationToken", () -> admin.describeDelegationToken().delegationTokens().get());
        ClientQuotaEntity alice = new ClientQuotaEntity(Map.of("user", "alice"));
        step("describeClientQuotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get());
        step("alterClientQuotas", () -> admin.alterClientQuotas(List.of(new ClientQuotaAlteration(alice, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1024.0))))).all().get());
        step("describeUserScramCredentials", () -> admin.describeUserScramCredentials().all().get());
        step("describeUserScramCredentials named", () -> admin.describeUserScramCredentials(List.of("alice")).all().get());
        step("alterUserScramCredentials", () -> admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion("alice", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "secret"))).all().get());
        step("alterUserScramCredentials delete", () -> admin.alterUserScramCredentials(List.of(new UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256))).all().get());
        step("describeFeatures", () -> new TreeMap<>(admin.describeFeatures().featureMetadata().get().supportedFeatures()).containsKey("metadata.version"));
        step("updateFeatures unknown", () -> admin.updateFeatures(Map.of("no.such.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all().get());
        step("updateFeatures too-high", () -> admin.updateFeatures(Map.of("metadata.version", new FeatureUpdate((short) 30000, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all().get());
        step("updateFeatures down-as-up", () -> admin.updateFeatures(Map.of("transaction.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all().get());
        step("updateFeatures validate-only", () -> admin.updateFeatures(Map.of("transaction.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE)), new UpdateFeaturesOptions().validateOnly(true)).all().get());
        step("describeMetadataQuorum", () -> admin.describeMetadataQuorum().quorumInfo().get().voters().size());
        // A node that does not exist: nobody waits for it as long as the broker does.
        step("addRaftVoter", () -> admin.addRaftVoter(9, new Uuid(9, 9), Set.of(new RaftVoterEndpoint("CONTROLLER", "127.0.0.1", 1)), (AddRaftVoterOptions) new AddRaftVoterOptions().timeoutMs(3000)).all().get());
        step("removeRaftVoter", () -> admin.removeRaftVoter(9, new Uuid(9, 9)).all().get());
        step("unregisterBroker", () -> admin.unregisterBroker(99).all().get());
        step("clientInstanceId", () -> admin.clientInstanceId(Duration.ofSeconds(20)).equals(Uuid.ZERO_UUID));
        step("deleteTopics", () -> admin.deleteTopics(List.of(TOPIC)).all().get());
        step("deleteTopics unknown", () -> admin.deleteTopics(List.of("nothing")).all().get());
        step("metrics", () -> !admin.metrics().isEmpty());
        step("registerMetricForSubscription", () -> "local");
        step("unregisterMetricFromSubscription", () -> "local");
        step("close", () -> {
            admin.close(Duration.ofSeconds(10));
            return "closed";
        });
        step("create", () -> "static");
        for (Method method : Admin.class.getMethods()) {
            if (!called.contains(method.getName())) {
                System.out.println("NOT CALLED\t" + method.getName() + "\t");
            }
        }
    }

    /** Three records, and a group that has read them and left. */
    static void produceAndConsume(String bootstrap) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < 3; number++) {
                producer.send(new ProducerRecord<>(TOPIC, 0, null, "value " + number)).get();
            }
        }
        settings.put(ConsumerConfig.GROUP_ID_CONFIG, "readers");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(P0));
            consumer.seekToBeginning(List.of(P0));
            int read = 0;
            while (read < 3) {
                read += consumer.poll(Duration.ofSeconds(1)).count();
            }
            consumer.commitSync();
        }
    }
}
