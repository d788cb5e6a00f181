// Does what lines of JSON on stdin ask with kafkajs, and answers each with a line on stdout.
// What a group member receives is written as it comes: {"records": [...]} and {"assigned": [...]}.
"use strict";

const readline = require("node:readline");
const { CompressionCodecs, CompressionTypes, Kafka, Partitioners, logLevel } = require("kafkajs");
const lz4 = require("lz4js");
const snappy = require("kafkajs-snappy");

// kafkajs itself has gzip only; the other codecs are plugged in, as its manual says.
async function plugCodecs() {
  const { Zstd } = await import(require.resolve("@hpcc-js/wasm-zstd"));
  const zstd = await Zstd.load();
  CompressionCodecs[CompressionTypes.Snappy] = snappy;
  CompressionCodecs[CompressionTypes.LZ4] = () => ({
    compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
  });
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
  });
}

const CODECS = { none: "None", gzip: "GZIP", snappy: "Snappy", lz4: "LZ4", zstd: "ZSTD" };
const kafka = new Kafka({ brokers: [process.argv[2]], logLevel: logLevel.ERROR });
let member = null;
const positions = new Map();

const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");

async function withClient(client, use) {
  await client.connect();
  try {
    return await use(client);
  } finally {
    await client.disconnect();
  }
}

const withAdmin = (use) => withClient(kafka.admin(), use);

async function consume(topic, options, begin) {
  // A consumer leaves only after its last fetch, which waits this long for records.
  member = kafka.consumer({ maxWaitTimeInMs: 200, ...options });
  member.on(member.events.GROUP_JOIN, ({ payload }) =>
    say({ assigned: payload.memberAssignment[topic] ?? [] }));
  // kafkajs says nothing of an assignment when it gives one up, only that it starts again.
  member.on(member.events.REBALANCING, () => say({ assigned: [] }));
  await member.connect();
  await member.subscribe({ topics: [topic], fromBeginning: true });
  await member.run({
    autoCommit: false,
    eachBatch: async ({ batch }) => {
      const records = batch.messages.map((m) => [
        batch.partition, Number(m.offset), Number(m.timestamp), m.key.toString(), m.value.toString(),
      ]);
      positions.set(batch.partition, String(BigInt(batch.lastOffset()) + 1n));
      say({ records });
    },
  });
  if (begin) await begin();
}

const COMMANDS = {
  create_topic: ({ topic, partitions }) =>
    withAdmin((admin) => admin.createTopics({ topics: [{ topic, numPartitions: partitions }] })),
  delete_topic: ({ topic }) => withAdmin((admin) => admin.deleteTopics({ topics: [topic] })),
  topics: () => withAdmin((admin) => admin.listTopics()),
  produce: ({ topic, messages, codec }) =>
    withClient(kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner }), (producer) =>
      producer.send({ topic, messages, compression: CompressionTypes[CODECS[codec]] })),
  join: ({ group, topic }) => consume(topic, { groupId: group, heartbeatInterval: 300 }),
  commit: ({ topic }) =>
    member.commitOffsets([...positions].map(([partition, offset]) => ({ topic, partition, offset }))),
  since: async ({ group, topic, partition, timestamp }) => {
    const found = await withAdmin((admin) => admin.fetchTopicOffsetsByTimestamp(topic, timestamp));
    const { offset } = found.find((entry) => entry.partition === partition);
    await consume(topic, { groupId: group }, () => member.seek({ topic, partition, offset }));
  },
  leave: () => member.disconnect(),
};

async function main() {
  await plugCodecs();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    try {
      say({ answer: (await COMMANDS[command.do](command)) ?? null });
    } catch (error) {
      say({ failed: String(error.stack) });
    }
  }
  process.exit(0);
}

main();
