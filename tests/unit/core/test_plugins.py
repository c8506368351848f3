from importlib.metadata import EntryPoint

import pytest

from metalforge.core import Discovery, PluginError, UnknownNameError, plugins, substrate
from metalforge.core.plugins import PluginWarning
from metalforge.substrates import discover


def register(monkeypatch, **entries):
    made = {n: EntryPoint(n, value, "test.group") for n, value in entries.items()}
    monkeypatch.setattr(plugins, "_entries", lambda group: made)


def test_a_broken_plugin_is_named_and_skipped(monkeypatch):
    register(monkeypatch, good="math:sqrt", absent="no_such_module:x", bare="math:no_such_name")
    with pytest.warns(PluginWarning) as caught:
        loaded = plugins.load_plugins("test.group")
    assert list(loaded) == ["good"]
    messages = sorted(str(w.message) for w in caught)
    assert "plug-in `absent` (no_such_module:x) failed to import: ModuleNotFoundError" in messages[0]
    assert "plug-in `bare` (math:no_such_name) failed to import: AttributeError" in messages[1]


def test_asking_for_a_missing_one_lists_the_installed(monkeypatch):
    register(monkeypatch, cpu="math:sqrt", cuda="no_such_module:x")
    with pytest.raises(UnknownNameError, match=r"`cqu`.*cpu, cuda\nhint.*`cpu`"):
        plugins.load_plugin("test.group", "cqu")
    with pytest.raises(PluginError, match="failed to import"):
        plugins.load_plugin("test.group", "cuda")


def test_built_ins_are_registered_like_strangers():
    assert {"cpu", "cuda", "npu"} <= set(plugins.plugin_names("metalforge.substrates"))


def _explode():
    raise RuntimeError("the driver is on fire")


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (_explode, "the driver is on fire"),
        (lambda: 7, "must return"),
        (lambda: Discovery(substrates=(1,)), "must return"),
    ],
)
def test_a_plugin_that_fails_while_looking_does_not_hide_the_rest(monkeypatch, plugin, message):
    from metalforge.substrates import cpu

    monkeypatch.setattr(substrate, "load_plugins", lambda group: {"stranger": plugin, "cpu": cpu.discover})
    with pytest.warns(PluginWarning, match=f"`stranger` failed.*{message}"):
        found = discover()
    assert [s.info.name for s in found.substrates] == ["cpu:0"]
    assert any(m.what == "stranger" and message in m.reason for m in found.missing)
