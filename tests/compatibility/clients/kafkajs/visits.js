// Takes visits as lines of JSON, {client, topic, value}: writes a record, reads it as a member of the group
// of the topic's name, and says what became of it.
"use strict";

const readline = require("node:readline");
const { Kafka, Partitioners, logLevel } = require("kafkajs");

async function roundTrip({ client, topic, value }) {
  const { token, ...sasl } = client.sasl ?? {};
  if (token !== undefined) sasl.oauthBearerProvider = async () => ({ value: token });
  const kafka = new Kafka({
    ...client,
    ...(client.sasl === undefined ? {} : { sasl }),
    logLevel: logLevel.NOTHING,
    retry: { retries: 1, initialRetryTime: 50 },
  });
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  const consumer = kafka.consumer({ groupId: topic, maxWaitTimeInMs: 200 });
  try {
    await producer.connect();
    await producer.send({ topic, messages: [{ value }] });
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    const read = await new Promise((resolve) =>
      consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) }));
    return read === value ? "SERVED" : "ANOTHER RECORD";
  } finally {
    await consumer.disconnect();
    await producer.disconnect();
  }
}

function outcomeOf(error) {
  const name = error.cause?.name ?? error.name;
  if (error.type === "TOPIC_AUTHORIZATION_FAILED" || error.cause?.type === "TOPIC_AUTHORIZATION_FAILED") {
    return "DENIED";
  }
  if (name.startsWith("KafkaJSSASLAuthenticationError")) return "LOGIN_REFUSED";
  if (name === "KafkaJSConnectionError" || name === "KafkaJSConnectionClosedError") return "NOT_CONNECTED";
  return `${name} ${error.type} ${error.message}`;
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let outcome;
    try {
      outcome = await roundTrip(JSON.parse(line));
    } catch (error) {
      outcome = outcomeOf(error);
    }
    process.stdout.write(`outcome ${outcome}\n`);
  }
}

main();
