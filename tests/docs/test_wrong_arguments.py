"""The first argument of a function's example is replaced by what it does not take: the error is the function's.

An AttributeError or a KeyError from inside says nothing to who made the mistake. The functions are those of the
reference, their examples the ones that it shows. A run takes one of ten, ``--slow`` all.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import warnings
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from autojit.core.errors import AutojitError
from tests.docs.test_site import NAMES, PARTS, example_of
from tools.docs_site import example_book

PREFIXES = ("aj", "F", "Tensor", "aj.linalg", "aj.fft", "aj.special", "aj.nn.init", "aj.nn.utils", "aj.nn.utils.rnn")
FOREIGN = (AttributeError, KeyError, AssertionError, UnboundLocalError, NameError)
AS_IN_TORCH = {"aj.save", "aj.load", "F.assert_int_or_pair"}  # an AttributeError with a message, an assertion
WRONG = ast.Constant("a")


def called(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and getattr(node.func, "attr", getattr(node.func, "id", "")) == name
            and node.args
        ):
            yield node


def fails_from_inside(code: str, name: str) -> str:
    """What a call with a text in place of its first argument raises, if that is an error from inside."""
    tree = ast.parse(code)
    call = next(called(tree, name), None)
    if call is None or isinstance(call.args[0], ast.Starred | ast.Constant | ast.Lambda):
        return ""
    call.args[0] = WRONG
    space: dict[str, Any] = {}
    exec(example_book.PRELUDE, space)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            exec(compile(ast.fix_missing_locations(tree), f"<{name}>", "exec"), space)
    except Exception as error:
        is_foreign = isinstance(error, FOREIGN) and not isinstance(error, AutojitError)
        return f"{name}: {type(error).__name__}: {error}" if is_foreign else ""
    return ""


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_a_text_in_place_of_an_operand_is_refused_by_the_function(part: int, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = []
    for page, name in NAMES:
        full = f"{page.prefix}.{name}"
        if page.prefix not in PREFIXES or full in AS_IN_TORCH or zlib.crc32(full.encode()) % PARTS != part:
            continue
        example = example_of(page, name)
        if example is None or example.raises:
            continue
        code = "\n".join(line[4:] if line.startswith((">>> ", "... ")) else line for line in example.code.splitlines())
        wrong.append(fails_from_inside(code, name))
    assert not any(wrong), "\n".join(filter(None, wrong))
    assert os.getcwd() == str(tmp_path)
