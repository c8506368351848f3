"""Channels by hand: order, backpressure, and three endings that are never confused."""

import threading
from queue import SimpleQueue

import pytest

from metalforge.core import SpecError
from metalforge.pipeline import (
    Bounded,
    Broadcast,
    BrokenError,
    ClosedError,
    EndOfChannel,
    Filtered,
    Latest,
    Unbounded,
    open_channel,
)


def kind_name(kind):
    return type(kind).__name__


KINDS = [Bounded(3), Bounded(3, max_bytes=1000), Unbounded(), Broadcast(3), Filtered(lambda x: True, Bounded(3))]


@pytest.mark.parametrize("kind", KINDS, ids=kind_name)
def test_values_come_out_in_order_and_iteration_stops_at_the_clean_end(kind):
    send, receive = open_channel(kind)

    def produce():
        with send:
            for i in range(200):
                send.send(i)

    thread = threading.Thread(target=produce)
    thread.start()
    assert list(receive) == list(range(200))
    thread.join()
    with pytest.raises(EndOfChannel):
        receive.receive()
    statistics = receive.statistics()
    assert (statistics.sent, statistics.taken, statistics.queued) == (200, 200, 0)


@pytest.mark.parametrize("kind", [Bounded(2), Bounded(2, max_bytes=100), Broadcast(2)], ids=kind_name)
def test_a_full_channel_holds_the_producer_back(kind):
    send, receive = open_channel(kind)
    send.send(1)
    send.send(2)
    with pytest.raises(TimeoutError, match="full"):
        send.send(3, timeout=0.01)
    assert receive.receive() == 1
    send.send(3, timeout=1)
    assert [receive.receive(), receive.receive()] == [2, 3]
    with pytest.raises(TimeoutError, match="nothing came"):
        receive.receive(timeout=0.01)


def test_bytes_hold_back_too_and_an_item_larger_than_the_limit_travels_alone():
    send, receive = open_channel(Bounded(10, max_bytes=100))
    send.send(bytes(60))
    with pytest.raises(TimeoutError):
        send.send(bytes(60), timeout=0.01)
    receive.receive()
    send.send(bytes(500), timeout=1)
    with pytest.raises(TimeoutError):
        send.send(b"x", timeout=0.01)
    assert len(receive.receive()) == 500


@pytest.mark.parametrize("kind", KINDS, ids=kind_name)
def test_send_all_pours_one_channel_into_another(kind):
    (send_a, receive_a), (send_b, receive_b) = open_channel(kind), open_channel(kind)

    def pour(send, values):
        with send:
            send.send_all(values)

    threads = [threading.Thread(target=pour, args=a) for a in ((send_a, range(100)), (send_b, receive_a))]
    for thread in threads:
        thread.start()
    assert list(receive_b) == list(range(100))
    for thread in threads:
        thread.join()
    receive_b.close()
    send, receive = open_channel(kind)
    receive.close()
    with pytest.raises(BrokenError):
        send.send_all([1])
    send.close()
    with pytest.raises(ClosedError):
        send.send_all([1])


def test_closed_by_us_is_our_bug():
    send, receive = open_channel(Bounded(1))
    send.close()
    receive.close()
    with pytest.raises(ClosedError):
        send.send(1)
    with pytest.raises(ClosedError):
        receive.receive()


def test_a_sender_that_dies_is_known_with_its_cause_after_what_it_sent():
    send, receive = open_channel(Bounded(4))

    def die():
        with send:
            send.send("last words")
            raise ValueError("out of memory")

    with pytest.raises(ValueError, match="out of memory"):
        die()
    assert receive.receive() == "last words"
    with pytest.raises(BrokenError, match="out of memory") as caught:
        receive.receive()
    assert isinstance(caught.value.cause, ValueError)


@pytest.mark.parametrize("kind", [Bounded(1), Bounded(1, max_bytes=10)], ids=kind_name)
def test_a_waiting_sender_learns_that_the_receiver_died(kind):
    send, receive = open_channel(kind)
    send.send(b"1234567890")
    seen = []

    def produce():
        try:
            send.send(b"1234567890")
        except BrokenError as error:
            seen.append(error)

    thread = threading.Thread(target=produce)
    thread.start()
    receive.close(RuntimeError("the consumer crashed"))
    thread.join()
    assert [type(e.cause) for e in seen] == [RuntimeError]
    with pytest.raises(BrokenError):
        send.send(b"x")


class Contended(SimpleQueue):
    """Credits of which another thread takes the last one after it was counted."""

    def qsize(self):
        return 1


def test_closing_does_not_wait_for_a_credit_that_the_sender_takes_meanwhile():
    _, receive = open_channel(Bounded(1))
    receive._lane.credits = Contended()
    closing = threading.Thread(target=receive.close, daemon=True)
    closing.start()
    closing.join(10.0)
    assert not closing.is_alive()


def test_latest_keeps_the_newest_and_counts_what_it_overwrote():
    send, receive = open_channel(Latest())
    for i in range(5):
        send.send(i)
    assert receive.receive() == 4
    assert receive.statistics().overwritten == 4


@pytest.mark.parametrize(
    ("kind", "left"),
    [(Bounded(2, drop="oldest"), [3, 4]), (Bounded(2, drop="newest"), [0, 1]), (Broadcast(2, slow="drop"), [0, 1])],
)
def test_dropping_is_a_kind_and_is_counted(kind, left):
    send, receive = open_channel(kind)
    with send:
        for i in range(5):
            send.send(i)
    assert list(receive) == left
    assert receive.statistics().dropped == 3


def test_a_disconnected_consumer_keeps_what_is_queued_and_is_told():
    send, receive = open_channel(Broadcast(2, slow="disconnect"))
    for i in range(5):
        send.send(i)
    assert [receive.receive(), receive.receive()] == [0, 1]
    with pytest.raises(BrokenError, match="too slow"):
        receive.receive()


def test_unbounded_warns_past_its_limit_once():
    send, receive = open_channel(Unbounded(warn_at=3))
    for i in range(3):
        send.send(i)
    with pytest.warns(ResourceWarning, match="more than 3"):
        send.send(3)
    send.send(4)
    send.close()
    assert list(receive) == [0, 1, 2, 3, 4]


def test_a_filter_counts_what_it_kept_out():
    send, receive = open_channel(Filtered("number % 2 == 0", Bounded(10)))
    with send:
        for i in range(6):
            send.send({"number": i})
    assert [v["number"] for v in receive] == [0, 2, 4]
    assert receive.statistics().filtered == 3


def test_a_kind_must_be_said():
    with pytest.raises(SpecError, match="`kind`"):
        open_channel(Bounded)
