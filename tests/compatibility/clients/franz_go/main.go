// Transactions of franz-go, printed as what readers of committed records saw, and its share consumer.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	ctx       = context.Background()
	bootstrap = os.Args[1]
	prefix    = os.Args[2]
)

func main() {
	ends()
	replicate()
	fencing()
	share()
}

// Three transactions, of which the second is aborted after its records have reached the log.
func ends() {
	topic := prefix + "-ends"
	producer := client(kgo.TransactionalID(prefix + "-writer"))
	defer producer.Close()
	for number := 0; number < 3; number++ {
		check(producer.BeginTransaction())
		for index := 0; index < 3; index++ {
			check(producer.ProduceSync(ctx, record(topic, fmt.Sprintf("%d-%d", number, index))).FirstErr())
		}
		check(producer.EndTransaction(ctx, kgo.TransactionEndTry(number != 1)))
	}
	fmt.Println("ends", read(topic, "2-2"))
}

// Every record is copied with its position; every second session is aborted, and copies again.
func replicate() {
	source, sink := prefix+"-source", prefix+"-sink"
	transaction(prefix+"-feeder", source, numbers(40)...)
	copied := 0
	for session := 0; copied < 40; session++ {
		copier, err := kgo.NewGroupTransactSession(options(
			kgo.TransactionalID(prefix+"-copier"),
			kgo.ConsumerGroup(prefix+"-copiers"),
			kgo.ConsumeTopics(source),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		)...)
		check(err)
		fetches := copier.PollRecords(ctx, 10)
		check(fetches.Err())
		check(copier.Begin())
		for _, one := range fetches.Records() {
			check(copier.ProduceSync(ctx, record(sink, string(one.Value))).FirstErr())
		}
		committed, err := copier.End(ctx, kgo.TransactionEndTry(session%2 == 0))
		check(err)
		if committed {
			copied += len(fetches.Records())
		}
		copier.Close()
	}
	transaction(prefix+"-marker", sink, "end")
	fmt.Println("copy", read(sink, "end"))
}

// A producer that was replaced cannot commit.
func fencing() {
	topic := prefix + "-fencing"
	zombie := client(kgo.TransactionalID(prefix + "-zombie"))
	check(zombie.BeginTransaction())
	check(zombie.ProduceSync(ctx, record(topic, "of the zombie")).FirstErr())
	transaction(prefix+"-zombie", topic, "of the successor")
	err := zombie.EndTransaction(ctx, kgo.TryCommit)
	if errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.ProducerFenced) {
		fmt.Println("fenced")
	} else {
		fmt.Println("fencing:", err)
	}
	zombie.Close()
	fmt.Println("fencing", read(topic, "of the successor"))
}

func transaction(id, topic string, values ...string) {
	producer := client(kgo.TransactionalID(id))
	defer producer.Close()
	check(producer.BeginTransaction())
	for _, value := range values {
		check(producer.ProduceSync(ctx, record(topic, value)).FirstErr())
	}
	check(producer.EndTransaction(ctx, kgo.TryCommit))
}

func read(topic, last string) string {
	consumer := client(
		kgo.ConsumerGroup(topic+"-readers"),
		kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	defer consumer.Close()
	var values []string
	for len(values) == 0 || values[len(values)-1] != last {
		fetches := consumer.PollFetches(ctx)
		check(fetches.Err())
		for _, one := range fetches.Records() {
			values = append(values, string(one.Value))
		}
	}
	return "[" + strings.Join(values, ", ") + "]"
}

func numbers(count int) []string {
	values := make([]string, count)
	for number := range values {
		values[number] = fmt.Sprint(number)
	}
	return values
}

func record(topic, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: 0, Value: []byte(value)}
}

func client(more ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(options(more...)...)
	check(err)
	return made
}

func options(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.AllowAutoTopicCreation(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, more...)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Two members of a share group accept, but for what asks to be released once or rejected.
func share() {
	topic, group := prefix+"-shared", prefix+"-workers"
	values := append([]string{"again", "poison"}, numbers(500)...)
	transaction(prefix+"-shared-feeder", topic, values...)
	outcomes := map[int64]string{}
	members := []*kgo.Client{}
	for range 2 {
		members = append(members, client(kgo.ShareGroup(group), kgo.ConsumeTopics(topic), kgo.ShareMaxRecords(50)))
	}
	for turn := 0; len(outcomes) < len(values); turn++ {
		member := members[turn%2]
		waiting, stop := context.WithTimeout(ctx, time.Second)
		for _, one := range member.PollFetches(waiting).Records() {
			status, outcome := kgo.AckAccept, "accepted"
			switch {
			case string(one.Value) == "poison":
				status, outcome = kgo.AckReject, "rejected"
			case string(one.Value) == "again" && one.DeliveryCount() == 1:
				status, outcome = kgo.AckRelease, ""
			}
			member.MarkAcks(status, one)
			if outcome != "" {
				if _, twice := outcomes[one.Offset]; twice {
					fmt.Println("twice", one.Offset)
				}
				outcomes[one.Offset] = fmt.Sprintf("%s %d", outcome, one.DeliveryCount())
			}
		}
		stop()
		check(member.FlushAcks(ctx))
	}
	for _, member := range members {
		member.Close()
	}
	counts := map[string]int{}
	for _, outcome := range outcomes {
		counts[outcome]++
	}
	fmt.Println("shared", counts)
}
