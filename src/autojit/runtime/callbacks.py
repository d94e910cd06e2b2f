"""What native code calls of Python: the ops of a step that have no native lowering, computed by their eager rules."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from autojit.codegen.cpu.plan.records import CallWords
from autojit.codegen.lowered import Callback
from autojit.core.device_array import DeviceArray, host_copy, write_array
from autojit.core.errors import AutojitError, out_of_memory_in_step
from autojit.ir.concrete import concrete
from autojit.runtime.diagnosis import array_at
from autojit.runtime.failures import Failures
from autojit.runtime.size_program import SizeProgram

Body = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
"""A function that entries of a plan run, in Python."""


def kept_address(function: Callable[[int, int, int], object], keep: list[Any]) -> int:
    """The address by which native code calls a function (context, chunk, worker), which ``keep`` keeps alive."""
    body = Body(function)
    keep.append(body)
    return ctypes.cast(body, ctypes.c_void_p).value or 0


def calling(
    callback: Callback, context: int, failures: Failures, open_sizes: SizeProgram | None, keep: list[Any]
) -> int:
    """The address of the words by which native code calls for an op (``aj_call``), which ``keep`` keeps alive.

    ``context``: of the addresses of operands and results.
    """
    words = np.zeros(len(CallWords.fields), np.int64)
    function = kept_address(computing(callback, failures, open_sizes, words), keep)
    words[:] = CallWords(function=function, context=context, error=failures.address, answers=0)
    keep.append(words)
    return int(words.ctypes.data)


def computing(
    callback: Callback, failures: Failures, open_sizes: SizeProgram | None, words: Any
) -> Callable[[int, int, int], object]:
    """The function that computes an op; ``failures`` are told what it raises.

    Native code tells by its ``words``, where answers are counted, that no signal has come in its place: its handler's
    exception is raised before the first line, and dropped by ctypes.
    """
    node, operands = callback.kernel.node, callback.kernel.operands
    whole = [v.type for v in (*operands, *node.outputs)]
    bound: list[Any] = [b"", (), ()]  # the addresses of the last call, and the arrays there

    def guarded(context: int, chunk: int, worker: int) -> None:
        try:
            body(context)
        except AutojitError as error:
            failures.caught(error.found_at(node.source, node.op.name))
        except MemoryError as error:
            failures.caught(out_of_memory_in_step(error, node.source, node.op.name, node.outputs[0].type))
        except BaseException as error:  # must not cross native code: raised when the step has ended
            failures.caught(error)
        words[CallWords.answers.place] += 1

    def body(context: int) -> None:
        values = {} if open_sizes is None else open_sizes.values()
        addresses = ctypes.string_at(context, 8 * len(whole))
        if open_sizes is not None or addresses != bound[0]:
            types = [concrete(t, values) for t in whole]
            inputs = [concrete(v.type, values) for v in node.inputs]
            pointers = (ctypes.c_void_p * len(types)).from_address(context)
            arrays = [array_at(p or 0, t) for p, t in zip(pointers, types, strict=True)]
            given = [a.reshape(t.shape) for a, t in zip(arrays[: len(operands)], inputs, strict=True)]
            bound[:] = addresses, given, arrays[len(operands) :]
        with np.errstate(all="ignore"):
            taken = map(host_copy, bound[1])
            results = (node.op if open_sizes is None else concrete(node.op, values)).eager(*taken)
        if node.op.n_outputs == 1:
            results = (results,)
        for target, result in zip(bound[2], results, strict=True):
            if type(target) is DeviceArray:  # writing is a copy then, and no kernel, which might be called back again
                result = np.asarray(result, target.dtype, order="C")
            write_array(target, result)

    return guarded
