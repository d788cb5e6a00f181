import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/** Counts the values of a topic by their last digit; every change of a count goes to another topic. */
public final class WordCount {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[3]);
        settings.put("client.id", arguments[4]);
        settings.put("state.dir", arguments[5] + "/" + arguments[4]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "100");
        settings.put("replication.factor", "3");
        // Every change is written, so that a repeat or a loss shows.
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("consumer.session.timeout.ms", "6000");
        settings.put("consumer.heartbeat.interval.ms", "500");
        settings.put("producer.transaction.timeout.ms", "10000");
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[1], Consumed.with(Serdes.String(), Serdes.String()))
                .groupBy((key, value) -> value.substring(value.length() - 1),
                        Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                        .withKeySerde(Serdes.String())
                        .withValueSerde(Serdes.Long()))
                .toStream()
                .map((word, count) -> org.apache.kafka.streams.KeyValue.pair(word, word + "=" + count))
                .to(arguments[2], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            System.err.println(arguments[4] + ": " + error);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
        Thread.currentThread().join();
    }
}
