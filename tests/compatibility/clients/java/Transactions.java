import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions of the Java client, printed as what readers of committed records saw. */
public final class Transactions {
    private static final Duration POLL = Duration.ofMillis(200);

    private static String bootstrap;
    private static String protocol;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        protocol = arguments[1];
        String prefix = arguments[2];
        ends(prefix);
        copy(prefix);
        fencing(prefix);
    }

    /** Three transactions, of which the second is aborted after its records have reached the log. */
    private static void ends(String prefix) throws Exception {
        String topic = prefix + "-ends";
        try (Producer<String, String> producer = producer(prefix + "-writer")) {
            for (int number = 0; number < 3; number++) {
                producer.beginTransaction();
                for (int index = 0; index < 3; index++) {
                    producer.send(new ProducerRecord<>(topic, 0, null, number + "-" + index)).get();
                }
                if (number == 1) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        System.out.println("ends " + read(topic, "2-2"));
    }

    /** Every record is copied with its position; each copier aborts its last transaction, and is replaced. */
    private static void copy(String prefix) {
        String source = prefix + "-source";
        String sink = prefix + "-sink";
        try (Producer<String, String> producer = producer(prefix + "-feeder")) {
            producer.beginTransaction();
            for (int number = 0; number < 40; number++) {
                producer.send(new ProducerRecord<>(source, 0, null, "" + number));
            }
            producer.commitTransaction();
        }
        int copied = 0;
        while (copied < 40) {
            try (Producer<String, String> producer = producer(prefix + "-copier");
                    Consumer<String, String> consumer = consumer(prefix + "-copiers")) {
                consumer.subscribe(List.of(source));
                for (int end = 0; end < 2 && copied < 40; end++) {
                    List<ConsumerRecord<String, String>> batch = some(consumer);
                    producer.beginTransaction();
                    Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
                    for (ConsumerRecord<String, String> record : batch) {
                        producer.send(new ProducerRecord<>(sink, 0, null, record.value()));
                        positions.put(
                                new TopicPartition(record.topic(), record.partition()),
                                new OffsetAndMetadata(record.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
                    producer.flush();
                    if (end == 1) {
                        producer.abortTransaction();
                    } else {
                        producer.commitTransaction();
                        copied += batch.size();
                    }
                }
            }
        }
        try (Producer<String, String> producer = producer(prefix + "-marker")) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(sink, 0, null, "end"));
            producer.commitTransaction();
        }
        System.out.println("copy " + read(sink, "end"));
    }

    /** A producer that was replaced cannot commit. */
    private static void fencing(String prefix) throws Exception {
        String topic = prefix + "-fencing";
        Producer<String, String> zombie = producer(prefix + "-zombie");
        zombie.beginTransaction();
        zombie.send(new ProducerRecord<>(topic, 0, null, "of the zombie")).get();
        try (Producer<String, String> successor = producer(prefix + "-zombie")) {
            successor.beginTransaction();
            successor.send(new ProducerRecord<>(topic, 0, null, "of the successor")).get();
            try {
                zombie.commitTransaction();
                System.out.println("fencing: the zombie has committed");
            } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
                System.out.println("fenced");
            }
            successor.commitTransaction();
        }
        zombie.close(Duration.ZERO);
        System.out.println("fencing " + read(topic, "of the successor"));
    }

    private static Producer<String, String> producer(String transactionalId) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", transactionalId);
        Producer<String, String> made =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }

    private static Consumer<String, String> consumer(String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("group.protocol", protocol);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", "10");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static List<ConsumerRecord<String, String>> some(Consumer<String, String> consumer) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        while (found.isEmpty()) {
            consumer.poll(POLL).forEach(found::add);
        }
        return found;
    }

    private static List<String> read(String topic, String last) {
        List<String> values = new ArrayList<>();
        try (Consumer<String, String> consumer = consumer(topic + "-readers")) {
            consumer.subscribe(List.of(topic));
            while (!values.contains(last)) {
                consumer.poll(POLL).forEach(record -> values.add(record.value()));
            }
        }
        return values;
    }
}
