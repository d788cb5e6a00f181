from penstock.core.model import Offset, ProducerId
from penstock.core.replica import OpenTransactions

ALICE, BOB = ProducerId(1), ProducerId(2)


def stable(transactions: OpenTransactions, high_watermark: int) -> int:
    return transactions.last_stable_offset(Offset(high_watermark))


def test_without_transactions_everything_below_the_high_watermark_is_stable() -> None:
    assert stable(OpenTransactions(), 50) == 50


def test_the_oldest_open_transaction_holds_back_what_is_stable() -> None:
    transactions = OpenTransactions()
    transactions.begin(ALICE, Offset(10))
    transactions.begin(BOB, Offset(14))
    transactions.begin(ALICE, Offset(18))

    assert stable(transactions, 50) == 10
    assert stable(transactions, 5) == 5


def test_a_transaction_whose_marker_is_not_replicated_is_not_stable_yet() -> None:
    transactions = OpenTransactions()
    transactions.begin(ALICE, Offset(10))
    transactions.end(ALICE, Offset(20))

    assert stable(transactions, 20) == 10
    assert stable(transactions, 21) == 21


def test_settled_transactions_are_forgotten() -> None:
    transactions = OpenTransactions()
    for number, producer in enumerate((ALICE, BOB)):
        transactions.begin(producer, Offset(10 + number))
        transactions.end(producer, Offset(20 + number))

    transactions.settle(Offset(21))

    assert transactions.ended() == [(11, 21)]


def test_the_end_of_a_transaction_says_up_to_where_a_reader_must_look() -> None:
    transactions = OpenTransactions()
    transactions.begin(ALICE, Offset(10))
    transactions.begin(BOB, Offset(14))

    first = transactions.end(BOB, Offset(20))
    second = transactions.end(ALICE, Offset(25))

    assert first == (BOB, 14, 20, 10)
    assert second == (ALICE, 10, 25, 26)


def test_a_marker_without_a_transaction_ends_nothing() -> None:
    assert OpenTransactions().end(ALICE, Offset(5)) is None


def test_transactions_are_restored_in_offset_order() -> None:
    transactions = OpenTransactions([(BOB, Offset(30)), (ALICE, Offset(10))])

    assert stable(transactions, 50) == 10
