"""A reader of pickles that cannot execute anything: a loop over the instructions that plain data consists of.

Instead of importing what a name says, it looks the name up: in ``torch_names``, then in the user's allow-list. Every
instruction makes at most what its own bytes hold, nothing recurses, keys and members of sets are plain, so a hostile
file ends in a ``LoadError``.
Source: Lib/pickletools.py of CPython (the instructions), https://peps.python.org/pep-3154/ (protocol 4).
"""

from __future__ import annotations

import collections
import pickletools
import struct
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from autojit.io.load_errors import LoadError, UnsafeGlobalError, refuse
from autojit.io.safe_globals import allowed, is_forbidden
from autojit.io.torch_names import FUNCTIONS, VALUES, PendingArray, PendingDType, Usable

_MARK = object()
_RENAMED = {"__builtin__": "builtins", "copy_reg": "copyreg", "__main__": "__main__"}
_SCALARS = (str, int, float, complex, bool, bytes, type(None))
_KEY_DEPTH = 8


class Allowed(Usable):
    """A class or function that a user allowed."""


class Own(Usable):
    """A class that the program has: it is made without its initialiser and given its attributes, never called."""


def _allowed_or_known(module: str, name: str, modules: Mapping[str, Any]) -> Any:
    full = f"{_RENAMED.get(module, module)}.{name}"
    by_user = allowed(full)
    if by_user is not None:
        return Allowed(full, by_user)
    if full in modules:
        found = modules[full]
        return Own(full, found) if isinstance(found, type) else found
    if full in VALUES:
        return VALUES[full]
    if full in FUNCTIONS:
        return FUNCTIONS[full]
    raise _refusal(full)


def _refusal(full: str) -> UnsafeGlobalError:
    """The error for a name that is not allowed, in the words by which programs know torch's."""
    what = f"load: Weights only load failed. The file names {full}, which is not allowed; nothing of it was called. "
    if is_forbidden(full):
        return UnsafeGlobalError(
            f"{what}unsupported GLOBAL {full} whose module {full.partition('.')[0]} is blocked",
            fix="do not use the file: what it names can reach the system",
        )
    return UnsafeGlobalError(
        f"{what}Unsupported global: GLOBAL {full} was not an allowed global by default",
        fix="load(..., weights_only=False) makes autojit's own modules"
        if full.startswith("autojit.")
        else "save a state_dict instead of whole objects; load(..., weights_only=False) makes modules and tensors of "
        f"classes that the program has imported; or, if you trust the file, use `torch.serialization.add_safe_globals"
        f"([{full.rpartition('.')[2]}])` or the context manager `torch.serialization.safe_globals` to allowlist it",
    )


def named_in(data: bytes) -> list[str]:
    """The classes and functions that a pickle names, without looking any of them up.

    Raises:
        LoadError: the pickle is damaged.
    """
    found: list[str] = []
    texts: list[str] = []
    try:
        for code, argument, _ in pickletools.genops(data):
            if code.name == "GLOBAL":
                module, _, name = str(argument).partition(" ")
                found.append(f"{_RENAMED.get(module, module)}.{name}")
            elif code.name == "STACK_GLOBAL":
                found.append(".".join(texts[-2:]))
            elif isinstance(argument, str):
                texts.append(argument)
    except (ValueError, struct.error, UnicodeDecodeError, IndexError) as error:
        raise LoadError(f"load: the pickle is damaged: {error}") from None
    return found


def is_known(name: str) -> bool:
    """Whether a file may name something: torch's names, and what a user has allowed."""
    return name in VALUES or name in FUNCTIONS or allowed(name) is not None


class PickleReader:
    """Runs the instructions of one pickle; ``persistent`` makes what the file refers to outside of it.

    ``modules`` are classes of modules, and functions of autojit's own, that the file may name besides, by full names.
    """

    def __init__(
        self,
        data: bytes,
        persistent: Callable[[Any], Any],
        encoding: str = "utf-8",
        modules: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.modules = modules
        self.data = data
        self.at = 0
        self.persistent = persistent
        self.encoding = encoding
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self._places: dict[int, int] = {}  # where the memo holds what is still pending

    def load(self) -> Any:
        """The object of the pickle.

        Raises:
            LoadError: the pickle is damaged or holds an instruction that plain data never needs.
            UnsafeGlobalError: it names something that is not allowed.
        """
        try:
            return self._run()
        except (LookupError, struct.error, ValueError, OverflowError, RecursionError) as error:
            raise LoadError(f"load: the pickle is damaged near byte {self.at}: {error!r}") from None

    def _run(self) -> Any:
        while True:
            code = self._bytes(1)[0]
            if code == 0x2E:  # STOP
                found = self.stack.pop()
                if found is _MARK or isinstance(found, PendingArray | PendingDType):
                    raise LoadError("load: the pickle ends in the middle of a value")
                return found
            action = _ACTIONS.get(code)
            if action is None:
                raise LoadError(f"load: the pickle holds the instruction {chr(code)!r}, which plain data never needs")
            action(self)

    # ---- reading

    def _bytes(self, count: int) -> bytes:
        found = self.data[self.at : self.at + count]
        refuse(len(found) != count, f"the pickle ends early, at byte {len(self.data)}")
        self.at += count
        return found

    def number(self, form: str) -> Any:
        """A number of a fixed width."""
        return struct.unpack(form, self._bytes(struct.calcsize(form)))[0]

    def sized(self, form: str) -> bytes:
        """Bytes behind their number."""
        return self._bytes(self.number(form))

    def old_text(self, form: str) -> str | bytes:
        """Text of Python 2 behind its number of bytes; bytes if the encoding is that."""
        found = self.sized(form)
        return found if self.encoding == "bytes" else found.decode(self.encoding)

    def line(self) -> str:
        """Text up to the end of the line."""
        end = self.data.index(b"\n", self.at) if b"\n" in self.data[self.at : self.at + 1000] else -1
        refuse(end < 0, "the pickle holds a name without an end")
        return self._bytes(end + 1 - self.at)[:-1].decode("utf-8")

    # ---- the stack

    def push(self, value: Any) -> None:
        """One more value."""
        self.stack.append(value)

    def above_mark(self) -> list[Any]:
        """The values above the last mark, which goes too."""
        place = len(self.stack) - 1
        while self.stack[place] is not _MARK:
            place -= 1
            refuse(place < 0, "the pickle closes a group that it never opened")
        found = self.stack[place + 1 :]
        del self.stack[place:]
        return found

    def remember(self, place: int) -> None:
        """Let later instructions refer to the top of the stack."""
        found = self.memo[place] = self.stack[-1]
        if isinstance(found, PendingArray):
            self._places[id(found)] = place

    def two(self) -> list[Any]:
        """The two values on top, which go."""
        last = self.stack.pop()
        return [self.stack.pop(), last]

    def fill(self, kind: type, add: Callable[[Any, Any], None], more: Any) -> None:
        """Add to the container on top."""
        found = self.stack[-1]
        refuse(not isinstance(found, kind), f"the pickle fills a {type(found).__name__}")
        add(found, more)

    # ---- making

    def items(self, pairs: list[Any]) -> None:
        """Fill the dict on top."""
        refuse(len(pairs) % 2 == 1, "a dict has a key without a value")
        self.fill(dict, _set_items, zip(pairs[::2], pairs[1::2]))

    def name(self, module: str, name: str) -> None:
        """What a name stands for."""
        self.push(_allowed_or_known(module, name, self.modules))

    def call(self) -> None:
        """Call a known function, or one that a user allowed."""
        function, arguments = self.two()
        refuse(not isinstance(arguments, tuple), "a call without arguments")
        if isinstance(function, Allowed):
            self.push(function.found(*_unwrapped(arguments)))
        elif id(function) in _CALLABLE:
            self.push(_called(function, arguments))
        else:
            raise LoadError(f"load: the pickle calls {str(function)[:60]}")

    def new(self) -> None:
        """An instance of a class that a user allowed, without its initialiser."""
        kind, arguments = self.two()
        if isinstance(kind, Own) and arguments == ():
            self.push(kind.found.__new__(kind.found))
            return
        if not isinstance(kind, Allowed) or not isinstance(kind.found, type) or not isinstance(arguments, tuple):
            raise LoadError(f"load: the pickle makes an instance of {str(kind)[:60]}")
        self.push(kind.found.__new__(kind.found, *_unwrapped(arguments)))

    def build(self) -> None:
        """Give the object on top its state."""
        state = self.stack.pop()
        target = self.stack[-1]
        if isinstance(target, PendingArray | PendingDType):
            made = target.set_state(state)
            self.stack[-1] = made
            place = self._places.pop(id(target), None)
            if place is not None:
                self.memo[place] = made
        elif type(target) is collections.OrderedDict:
            target.__dict__.update(_attributes(state))
        elif f"{type(target).__module__}.{type(target).__qualname__}" in self.modules:
            _set_attributes(target, state)
        elif allowed(f"{type(target).__module__}.{type(target).__qualname__}") is not None:
            _set_state(target, state)
        else:
            raise LoadError(f"load: the pickle sets the state of a {type(target).__name__}")


_CALLABLE = frozenset(id(function) for function in FUNCTIONS.values())
_OF_MEMBERS = frozenset(id(f) for f in (set, frozenset, collections.OrderedDict, FUNCTIONS["collections.Counter"]))


def _called(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    if id(function) in _OF_MEMBERS:
        arguments = tuple(_plain_members(a) for a in arguments)
    try:
        return function(*arguments)
    except LoadError:
        raise
    except Exception as error:  # whatever the function makes of it: the arguments are the file's
        raise LoadError(f"load: a value is malformed: {error}") from None


def _plain_members(members: Any) -> Any:
    if isinstance(members, dict):
        return members
    refuse(not isinstance(members, list | tuple), f"a set of the members of a {type(members).__name__}")
    for member in members:
        plain(member[0] if isinstance(member, list) and member else member)
    return members


def plain(key: Any, depth: int = 0) -> Any:
    """A key or a member of a set: numbers, text, and tuples of them."""
    is_container = isinstance(key, tuple | list | dict | set | frozenset)
    if isinstance(key, _SCALARS) or (not is_container and type(key).__hash__ is not None):
        return key
    if isinstance(key, tuple) and depth < _KEY_DEPTH:
        for part in key:
            plain(part, depth + 1)
        return key
    raise LoadError(f"load: a key of a dict is a {type(key).__name__}")


def _unwrapped(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(v.found if isinstance(v, Allowed) else v for v in values)


def _attributes(state: Any) -> dict[str, Any]:
    if not isinstance(state, dict) or not all(type(name) is str for name in state):
        raise LoadError("load: the state of an object is no dict of its attributes")
    return state


def _set_attributes(module: Any, state: Any) -> None:
    """Give a module what it had when it was saved."""
    attributes = _attributes(state)
    try:
        setter = getattr(module, "__setstate__", None)
        setter(attributes) if setter is not None else module.__dict__.update(attributes)
    except (TypeError, AttributeError) as error:
        raise LoadError(f"load: a {type(module).__name__} is malformed: {error}") from None


def _set_state(target: Any, state: Any) -> None:
    setter = getattr(target, "__setstate__", None)
    if setter is not None:
        setter(state)
    elif isinstance(state, tuple) and len(state) == 2:
        target.__dict__.update(_attributes(state[0] or {}))
        for name, value in _attributes(state[1] or {}).items():
            setattr(target, name, value)
    else:
        target.__dict__.update(_attributes(state))


def _set_items(target: dict[Any, Any], pairs: Iterable[tuple[Any, Any]]) -> None:
    for key, value in pairs:
        target[plain(key)] = value


def _int_of(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _tuple_of(count: int) -> Callable[[PickleReader], None]:
    def action(r: PickleReader) -> None:
        refuse(len(r.stack) < count or _MARK in r.stack[-count:], "the pickle makes a tuple of too few values")
        r.stack[-count:] = [tuple(r.stack[-count:])]

    return action


def _dict(r: PickleReader) -> None:
    pairs = r.above_mark()
    r.push({})
    r.items(pairs)


def _stack_global(r: PickleReader) -> None:
    module, name = r.two()
    refuse(not isinstance(name, str) or not isinstance(module, str), "a name is no text")
    r.name(module, name)


def _protocol(r: PickleReader) -> None:
    found = r.number("<B")
    refuse(not 2 <= found <= 5, f"a pickle of protocol {found}; files of torch have 2 to 5")


def _global(r: PickleReader) -> None:
    module = r.line()
    r.name(module, r.line())


_ACTIONS: dict[int, Callable[[PickleReader], object]] = {
    ord(code): action
    for code, action in {
        "\x80": _protocol,
        "\x95": lambda r: r.number("<Q"),  # how far a buffer reaches, of no use here
        "(": lambda r: r.push(_MARK),
        "0": lambda r: r.stack.pop(),
        "1": lambda r: r.above_mark(),
        "N": lambda r: r.push(None),
        "\x88": lambda r: r.push(True),
        "\x89": lambda r: r.push(False),
        "J": lambda r: r.push(r.number("<i")),
        "K": lambda r: r.push(r.number("<B")),
        "M": lambda r: r.push(r.number("<H")),
        "\x8a": lambda r: r.push(_int_of(r.sized("<B"))),
        "\x8b": lambda r: r.push(_int_of(r.sized("<I"))),
        "G": lambda r: r.push(r.number(">d")),
        "X": lambda r: r.push(r.sized("<I").decode("utf-8", "surrogatepass")),
        "\x8c": lambda r: r.push(r.sized("<B").decode("utf-8", "surrogatepass")),
        "\x8d": lambda r: r.push(r.sized("<Q").decode("utf-8", "surrogatepass")),
        "U": lambda r: r.push(r.old_text("<B")),
        "T": lambda r: r.push(r.old_text("<I")),
        "C": lambda r: r.push(r.sized("<B")),
        "B": lambda r: r.push(r.sized("<I")),
        "\x8e": lambda r: r.push(r.sized("<Q")),
        "\x96": lambda r: r.push(bytearray(r.sized("<Q"))),
        ")": lambda r: r.push(()),
        "]": lambda r: r.push([]),
        "}": lambda r: r.push({}),
        "\x8f": lambda r: r.push(set()),
        "t": lambda r: r.push(tuple(r.above_mark())),
        "\x85": _tuple_of(1),
        "\x86": _tuple_of(2),
        "\x87": _tuple_of(3),
        "l": lambda r: r.push(r.above_mark()),
        "d": _dict,
        "a": lambda r: r.fill(list, list.append, r.stack.pop()),
        "e": lambda r: r.fill(list, list.extend, r.above_mark()),
        "s": lambda r: r.items(r.two()),
        "u": lambda r: r.items(r.above_mark()),
        "\x90": lambda r: r.fill(set, set.update, map(plain, r.above_mark())),
        "\x91": lambda r: r.push(frozenset(plain(v) for v in r.above_mark())),
        "q": lambda r: r.remember(r.number("<B")),
        "r": lambda r: r.remember(r.number("<I")),
        "\x94": lambda r: r.remember(len(r.memo)),
        "h": lambda r: r.push(r.memo[r.number("<B")]),
        "j": lambda r: r.push(r.memo[r.number("<I")]),
        "c": _global,
        "\x93": _stack_global,
        "R": lambda r: r.call(),
        "\x81": lambda r: r.new(),
        "b": lambda r: r.build(),
        "Q": lambda r: r.push(r.persistent(r.stack.pop())),
    }.items()
}
