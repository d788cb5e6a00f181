import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.errors.SslAuthenticationException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Takes visits as lines of JSON, {settings, topic, value}: writes a record, reads it as a member of the group
 * of the topic's name, and says what became of it. With {times, pauseMs} it goes on so, on the same clients.
 */
public class Visits {
    static String roundTrip(JsonNode visit) throws Exception {
        Properties settings = new Properties();
        visit.get("settings").properties().forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
        settings.put("enable.metrics.push", "false");
        settings.putIfAbsent("max.block.ms", "5000");
        settings.put("group.id", visit.get("topic").asText());
        settings.put("auto.offset.reset", "earliest");
        String topic = visit.get("topic").asText();
        String value = visit.get("value").asText();
        int times = visit.has("times") ? visit.get("times").asInt() : 1;
        StringSerializer out = new StringSerializer();
        StringDeserializer in = new StringDeserializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, out, out)) {
            producer.send(new ProducerRecord<>(topic, value)).get();
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, in, in)) {
                consumer.subscribe(List.of(topic));
                for (int number = 1; number <= times; number++) {
                    ConsumerRecords<String, String> records = ConsumerRecords.empty();
                    while (records.isEmpty()) {
                        records = consumer.poll(Duration.ofSeconds(1));
                    }
                    if (!records.iterator().next().value().equals(value)) {
                        return "ANOTHER RECORD";
                    }
                    if (number < times) {
                        Thread.sleep(visit.get("pauseMs").asInt());
                        producer.send(new ProducerRecord<>(topic, value)).get();
                    }
                }
            }
        }
        return "SERVED";
    }

    static String outcomeOf(Throwable error) {
        if (error instanceof AuthorizationException) {
            return "DENIED";
        }
        if (error instanceof SaslAuthenticationException) {
            return "LOGIN_REFUSED";
        }
        if (error instanceof SslAuthenticationException) {
            return "NOT_CONNECTED";
        }
        if (error.getCause() != null) {
            return outcomeOf(error.getCause());
        }
        return error.toString();
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String outcome;
            try {
                outcome = roundTrip(mapper.readTree(line));
            } catch (Exception error) {
                outcome = outcomeOf(error);
            }
            System.out.println("outcome " + outcome);
        }
    }
}
