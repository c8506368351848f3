"""What the journal says of a worker that died: in one line, with the cause that Ray names last."""

from metalforge.cluster.machines import cause_of

DIED = "The actor died unexpectedly before finishing this task."


def test_the_cause_is_said_and_the_names_between_are_left_out():
    said = f"{DIED}\n\tclass_name: NodeWorker\n\tpid: 7\nThe actor is dead because it was killed by `ray.kill`.\nmore"
    assert cause_of(RuntimeError(said)) == f"{DIED} The actor is dead because it was killed by `ray.kill`."


def test_a_death_without_a_cause():
    assert cause_of(RuntimeError(DIED)) == DIED
    assert cause_of(RuntimeError()) == "RuntimeError"
