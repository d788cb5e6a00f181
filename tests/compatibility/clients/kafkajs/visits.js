// Takes visits as lines of JSON, {client, topic, value}: writes a record, reads it as a member of the group
// of the topic's name, and says what became of it. With {times, pauseMs} it goes on so, on the same clients.
"use strict";

const events = require("node:events");
const fs = require("node:fs");
const readline = require("node:readline");
const timers = require("node:timers/promises");
const { Kafka, Partitioners, logLevel } = require("kafkajs");

async function roundTrip({ client, topic, value, times = 1, pauseMs = 0 }) {
  const { token, tokenFile, ...sasl } = client.sasl ?? {};
  if (token !== undefined) sasl.oauthBearerProvider = async () => ({ value: token });
  if (tokenFile !== undefined) {
    sasl.oauthBearerProvider = async () => ({ value: fs.readFileSync(tokenFile, "utf8") });
  }
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
    const read = new events.EventEmitter();
    const next = () => events.once(read, "record");
    let coming = next();
    await consumer.run({ eachMessage: async ({ message }) => read.emit("record", message.value.toString()) });
    for (let number = 1; number <= times; number += 1) {
      if ((await coming)[0] !== value) return "ANOTHER RECORD";
      if (number === times) break;
      await timers.setTimeout(pauseMs);
      coming = next();
      await producer.send({ topic, messages: [{ value }] });
    }
    return "SERVED";
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
