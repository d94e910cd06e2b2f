"""Structures of arguments and results: keys of many tables, looked up at every call, whatever their depth."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time

from autojit.jit.made_objects import Array
from autojit.jit.pytree import LEAF, TreeSpec, flatten

_NEST = {"a": [1, (2, None)], "b": {"c": 3}}


def test_equal_structures_are_one_key_and_kinds_of_them_stay_apart() -> None:
    _, spec = flatten(_NEST)
    _, twin = flatten({"a": [4, (5, None)], "b": {"c": 6}})
    assert spec == twin and hash(spec) == hash(twin) and spec.count == spec.num_leaves == 4
    assert spec != flatten({"a": [1, (2,)], "b": {"c": 3}})[1]
    assert TreeSpec(list, (LEAF,), (1, False)) != Array(list, (LEAF,), (1, False))
    assert Array(list, (LEAF,), (1, False)) == Array(list, (LEAF,), (1, False))


def test_a_structure_that_comes_from_another_process_is_the_same_key() -> None:
    """Hashes of texts are a process's own: none travels along."""
    _, spec = flatten(_NEST)
    hash(spec)
    code = (
        "import pickle, sys; from autojit.jit.pytree import flatten; spec = pickle.loads(sys.stdin.buffer.read());"
        f"assert spec in {{flatten({_NEST!r})[1]: 1}}"
    )
    subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(spec), check=True, env={**os.environ, "PYTHONHASHSEED": "7"}
    )


def test_a_look_up_does_not_walk_the_structure_again() -> None:
    """A replay buffer's batch has 500 leaves, and a call looks its structure up some hundred times."""
    _, spec = flatten([(k, [k, None]) for k in range(20_000)])
    start = time.process_time()
    hash(spec)
    once = time.process_time() - start
    start = time.process_time()
    for _ in range(100):
        hash(spec)
    assert time.process_time() - start < once
