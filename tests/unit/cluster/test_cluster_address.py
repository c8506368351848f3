"""The text of `--cluster`. Needs no Ray."""

import dataclasses

import pytest

from metalforge.cluster import ClusterAddress
from metalforge.cluster.joining import choose
from metalforge.core.errors import PlacementError, SpecError


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("auto", {"kind": "auto"}),
        ("local:3x2", {"kind": "local", "nodes": 3, "cores": 2}),
        ("local:64x1024", {"kind": "local", "nodes": 64, "cores": 1024}),
        ("ray://head.example.org:10001", {"kind": "client", "host": "head.example.org", "port": 10001}),
        ("10.0.0.7:6379", {"kind": "head", "host": "10.0.0.7", "port": 6379}),
        ("[::1]:6379", {"kind": "head", "host": "[::1]", "port": 6379}),
    ],
)
def test_a_text_is_read_and_given_again(text, parts):
    address = ClusterAddress.parse(text)
    assert address == ClusterAddress(**parts)
    assert str(address) == text
    assert ClusterAddress.parse(str(address)) == address
    assert {address: 1}[ClusterAddress.parse(text)] == 1


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "auto"),
        ("local", "NODESxCORES"),
        ("local:3", "NODESxCORES"),
        ("local:0x2", "1 to 64 nodes"),
        ("local:65x1", "1 to 64 nodes"),
        ("local:1x1025", "1024 cores"),
        ("local:-1x2", "NODESxCORES"),
        ("local:3x2 ", "NODESxCORES"),
        ("local:9999999999x1", "NODESxCORES"),
        ("ray://head", "HOST:PORT"),
        ("ray://head:0", "65535"),
        ("head:70000", "65535"),
        ("http://head:80", "HOST:PORT"),
        ("-oProxyCommand=x:22", "HOST:PORT"),
        ("head:6379\n", "HOST:PORT"),
        ("a b:1", "HOST:PORT"),
    ],
)
def test_what_names_no_cluster_is_refused_with_what_would(text, word):
    with pytest.raises(SpecError, match=word) as caught:
        ClusterAddress.parse(text)
    assert repr(text) in str(caught.value)
    assert "hint:" in str(caught.value)


def test_an_address_is_a_value():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ClusterAddress.parse("auto").kind = "head"


A, B = "10.0.0.7:6379", "10.0.0.8:6379"


@pytest.mark.parametrize(
    ("told", "latest", "running", "meant"),
    [
        (A, B, {B}, A),  # who names one means it
        ("ray://head:10001", None, (), "ray://head:10001"),
        ("auto", A, {A}, A),
        ("", A, {A, B}, A),  # the one of the last `ray start` here
        ("", A, (), A),  # its processes are not seen from here
        ("", A, {B}, B),  # that one is over
        ("", None, {B}, B),
    ],
)
def test_auto_means_the_cluster_that_is_named_or_that_this_machine_belongs_to(told, latest, running, meant):
    assert str(choose(told, latest, running)) == meant


@pytest.mark.parametrize(
    ("told", "latest", "running", "words"),
    [
        ("", None, (), ("RAY_ADDRESS is not set", "local:3x2")),
        ("", None, {B, A}, (f"2 clusters: {A}, {B}", f"--cluster {A}")),
        ("", "10.0.0.9:6379", {A, B}, ("2 clusters",)),
        ("nonsense", A, {A}, ("RAY_ADDRESS", "'nonsense'")),
        ("local:3x2", A, {A}, ("RAY_ADDRESS", "'local:3x2'")),
    ],
)
def test_auto_says_what_is_missing(told, latest, running, words):
    with pytest.raises(PlacementError) as caught:
        choose(told, latest, running)
    assert all(word in str(caught.value) for word in (*words, "hint:"))
