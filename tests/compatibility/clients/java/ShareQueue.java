import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Consumes a topic as a share group: accepts, but for what asks to be released, rejected or renewed. */
public class ShareQueue {
    public static void main(String[] arguments) {
        String address = arguments[0], topic = arguments[1], group = arguments[2];
        int wanted = Integer.parseInt(arguments[3]);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", address);
        properties.put("group.id", group);
        properties.put("share.acknowledgement.mode", "explicit");
        StringDeserializer text = new StringDeserializer();
        TreeMap<Long, String> outcomes = new TreeMap<>();
        long end = System.currentTimeMillis() + 60_000;
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(properties, text, text)) {
            consumer.subscribe(List.of(topic));
            while (outcomes.size() < wanted && System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    int delivery = record.deliveryCount().get();
                    if (record.value().equals("poison")) {
                        consumer.acknowledge(record, AcknowledgeType.REJECT);
                        outcomes.put(record.offset(), "rejected " + delivery);
                    } else if (record.value().equals("again") && delivery == 1) {
                        consumer.acknowledge(record, AcknowledgeType.RELEASE);
                    } else {
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                        outcomes.put(record.offset(), "accepted " + delivery);
                    }
                }
                consumer.commitSync().values().forEach(error -> error.ifPresent(System.out::println));
            }
        }
        outcomes.forEach((offset, outcome) -> System.out.println(offset + " " + outcome));
    }
}
