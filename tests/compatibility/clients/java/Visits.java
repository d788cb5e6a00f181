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
 * of the topic's name, and says what became of it.
 */
public class Visits {
    static String roundTrip(JsonNode visit) throws Exception {
        Properties settings = new Properties();
        visit.get("settings").properties().forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
        settings.put("enable.metrics.push", "false");
        settings.put("max.block.ms", "5000");
        settings.put("group.id", visit.get("topic").asText());
        settings.put("auto.offset.reset", "earliest");
        String topic = visit.get("topic").asText();
        StringSerializer out = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, out, out)) {
            producer.send(new ProducerRecord<>(topic, visit.get("value").asText())).get();
        }
        StringDeserializer in = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, in, in)) {
            consumer.subscribe(List.of(topic));
            ConsumerRecords<String, String> records = ConsumerRecords.empty();
            while (records.isEmpty()) {
                records = consumer.poll(Duration.ofSeconds(1));
            }
            String read = records.iterator().next().value();
            return read.equals(visit.get("value").asText()) ? "SERVED" : "ANOTHER RECORD";
        }
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
