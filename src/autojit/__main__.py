"""``python -m autojit``: the command line; each command is an entry of ``COMMANDS``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import autojit as aj
from autojit.compat import script
from autojit.core.errors import AutojitError
from autojit.demo import command as demo
from autojit.export import command as export
from autojit.testing import command as gradcheck


class Command(NamedTuple):
    """What a command is for, its options, and what runs it and gives the exit status."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    """For a command without options."""


def _warm(_: argparse.Namespace) -> int:
    made = aj.cache.warm()
    print(f"{made.misses} modules compiled, {made.hits} found in {aj.cache.directory()}")
    return 0


COMMANDS = {
    "demo": Command("train on handwritten digits, eager and compiled, and compare", demo.add_arguments, demo.run),
    "run": Command("run a program written for torch, as it is", script.add_arguments, script.run),
    "export": Command("write a function or module to a library without Python", export.add_arguments, export.run),
    "warm": Command("compile what is the same in every program, once per machine", _no_arguments, _warm),
    "gradcheck": Command("check derivatives by finite differences", gradcheck.add_arguments, gradcheck.run),
}


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="python -m autojit", description="autojit: a tracing compiler with PyTorch's face"
    )
    top.add_argument("--version", action="version", version=f"autojit {aj.__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND")
    for name, command in COMMANDS.items():
        sub = commands.add_parser(name, help=command.help, description=command.help)
        command.add_arguments(sub)
        sub.set_defaults(run=command.run)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; without one, print the help. Exit status 2 when the input is at fault, 130 when interrupted."""
    top = parser()
    options = top.parse_args(arguments)
    if not hasattr(options, "run"):
        top.print_help()
        return 0
    try:
        return int(options.run(options))
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stdout = None
        return 0
    except (AutojitError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
