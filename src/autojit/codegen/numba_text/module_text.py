"""A printed LLVM module read into functions: those that a function calls, with canonical names.

How to read: `read_module` cuts the text into top-level pieces; `linked` follows the calls from one function, gives
functions, values, blocks and constants names that depend on the function alone, and leaves out attributes and metadata.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from autojit.codegen.numba_text.instruction_text import split, take_type, typed
from autojit.core.errors import UnsupportedError
from autojit.core.records import record

_GLOBAL_NAME = re.compile(r'@(?:"[^"]*"|[-\w$.]+)')
_LOCAL_NAME = re.compile(r'%(?:"[^"]*"|[-\w$.]+)')
_LABEL = re.compile(r'^(?:"([^"]*)"|([-\w$.]+)):')
_METADATA = re.compile(r"(?:,\s*![\w.]+ !\d+)+|,\s*![\w.]+ ![\w.(){}, !]*$")
_GROUP = re.compile(r" #\d+")
_FAILURE = re.compile(r"@(\.const\.picklebuf\.\w+)")
_LOOK_UP = re.compile(r'\s*(%(?:"[^"]*"|[-\w$.]+)) = load ptr, ptr @"\.numba\.unresolved\$([-\w$.]+)"')
_LINKAGE = re.compile(
    r"^(@\S+|@\"[^\"]*\") = (?:(?:private|internal|common|linkonce_odr|weak|weak_odr|linkonce|external|dso_local|"
    r"local_unnamed_addr|unnamed_addr|hidden|available_externally)\s+)*"
)


@record(frozen=False)
class Function:
    """One function: its result type, its (type, name) parameters, its blocks as label and lines."""

    name: str
    returns: str
    parameters: list[tuple[str, str]]
    blocks: list[tuple[str, list[str]]] = field(default_factory=list)

    def lines(self) -> list[str]:
        return [line for _, block in self.blocks for line in block]


@record(frozen=False)
class ModuleText:
    """The pieces of a module by name: functions as head and body lines, declarations, globals."""

    functions: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    globals: dict[str, str] = field(default_factory=dict)


@record
class Linked:
    """A function with everything it refers to. ``functions[0]`` is the function itself.

    Args:
        functions: the function and those it calls.
        globals: constants they read, by name: full text.
        externals: names they call that somebody else must define.
        failures: the descriptions of the exceptions they raise, by name, in the order of their numbers.
    """

    functions: tuple[Function, ...]
    globals: dict[str, str]
    externals: tuple[str, ...]
    failures: tuple[str, ...] = ()


def read_module(text: str) -> ModuleText:
    """Cut a module's text into its pieces."""
    module = ModuleText()
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("define "):
            name = _name_of(line)
            body = []
            for inner in lines:
                if inner == "}":
                    break
                body.append(inner)
            module.functions[name] = (line, _with_direct_calls(body))
        elif line.startswith("@"):
            module.globals[_name_of(line)] = line
        elif re.match(r"%\S+ = type ", line):
            raise UnsupportedError("a linked function uses a named LLVM type", {"type": line})
    return module


def _with_direct_calls(body: list[str]) -> list[str]:
    """Calls of functions that Numba looks up when the module is loaded (recursive ones) as calls by name."""
    known: dict[str, str] = {}
    kept = []
    for line in body:
        looked_up = _LOOK_UP.match(line)
        if looked_up:
            known[looked_up.group(1)] = looked_up.group(2)
        else:
            kept.append(line)
    if not known:
        return body
    return [
        _LOCAL_NAME.sub(lambda name: f"@{known[name.group()]}" if name.group() in known else name.group(), line)
        for line in kept
    ]


def _name_of(line: str) -> str:
    found = _GLOBAL_NAME.search(line)
    assert found is not None, line
    return found.group()[1:]


def linked(module: ModuleText, root: str) -> Linked:
    """The function ``root`` and what it reaches, under names made from their contents.

    A pointer to the description of an exception becomes the number of the failure (1, 2, ...; ``failures`` has the
    names of the descriptions), which the function leaves behind its second parameter.
    """
    order, constants, externals = _reached(module, root)
    failures: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found.group(1) not in failures:
            failures.append(found.group(1))
        return f"inttoptr (i64 {failures.index(found.group(1)) + 1} to ptr)"

    bodies = []
    for name in order:
        head, body = module.functions[name]
        bodies.append(_function(name, head, [_FAILURE.sub(number, line) for line in body]))
    tables = {name: _constant(module.globals[name]) for name in constants}
    return replace(canonical(bodies, tables, tuple(externals)), failures=tuple(failures))


def canonical(functions: Sequence[Function], tables: Mapping[str, str], externals: tuple[str, ...]) -> Linked:
    """Functions (the first one is what the others are there for) and constants under names made from their contents."""
    names = {function.name: f"f{k}" for k, function in enumerate(functions)}
    names.update({name: f"c{k}" for k, name in enumerate(tables)})
    renamed = [_numbered(_renamed(function, names)) for function in functions]
    shorter = {names[name]: _with_names(text, names) for name, text in tables.items()}
    digest = hashlib.sha256(repr(([_key(f) for f in renamed], shorter)).encode()).hexdigest()[:16]
    final = {short: f"aj.op.{digest}.{short}" for short in names.values()}
    constants = {final[short]: _with_names(text, final) for short, text in shorter.items()}
    return Linked(tuple(_renamed(function, final) for function in renamed), constants, externals)


def _key(function: Function) -> tuple[object, ...]:
    return (function.name, function.returns, function.parameters, function.blocks)


def _reached(module: ModuleText, root: str) -> tuple[list[str], list[str], list[str]]:
    """Names of functions, of constants, and of what the module only declares, in the order they are met."""
    functions: list[str] = []
    constants: list[str] = []
    externals: list[str] = []
    waiting = [root]
    while waiting:
        name = waiting.pop(0)
        if name in functions or name in constants or name in externals:
            continue
        if name in module.functions:
            functions.append(name)
            text = "\n".join(_clean(line) for line in module.functions[name][1])
        elif name in module.globals and not _is_told_by_failure(name):
            constants.append(name)
            text = _LINKAGE.sub("", module.globals[name])
        else:
            externals.append(name)
            continue
        waiting += [found[1:] for found in _GLOBAL_NAME.findall(text)]
    return functions, constants, [name for name in externals if not _is_told_by_failure(name)]


def _is_told_by_failure(name: str) -> bool:
    """Whether a global describes an exception: those are not linked, functions give the number of a failure."""
    return name.startswith(".const.pick")


def _clean(line: str) -> str:
    """A line without comments, metadata and references to attribute groups."""
    if '"' not in line:
        line = line.partition(";")[0]
    return _GROUP.sub("", _METADATA.sub("", line.rstrip())).rstrip()


def _function(name: str, head: str, body: list[str]) -> Function:
    """A function of the text, its values and blocks named ``%v0``, ``%b0``... in order."""
    symbol = _GLOBAL_NAME.search(head)
    assert symbol is not None, head
    listed, _ = take_type(head[symbol.end() :])
    parameters = [typed(part) for part in split(listed[1:-1])]
    returns = _result_type(head[: symbol.start()])
    names = {value: f"%a{k}" for k, (_, value) in enumerate(parameters)}
    cleaned = [clean for line in body if (clean := _clean(line)).strip() and not clean.lstrip().startswith("#dbg")]
    labels = [found.group(1) or found.group(2) for line in cleaned if (found := _LABEL.match(line))]
    if not cleaned or not _LABEL.match(cleaned[0]):
        cleaned.insert(0, "entry:")
        labels.insert(0, "entry")
    for k, label in enumerate(labels):
        names[f"%{label}"] = names[f'%"{label}"'] = f"%b{k}"
    for line in _joined(cleaned):
        defined = re.match(r'\s*(%(?:"[^"]*"|[-\w$.]+)) = ', line)
        if defined:
            names.setdefault(defined.group(1), f"%v{len(names)}")
    result = Function(name, returns, [(kind, names[value]) for kind, value in parameters])
    for line in _joined(cleaned):
        if _LABEL.match(line):
            result.blocks.append((f"b{len(result.blocks)}", []))
            continue
        text = _LOCAL_NAME.sub(lambda found: names.get(found.group(), found.group()), line.strip())
        result.blocks[-1][1].append(text)
    return result


def _joined(lines: list[str]) -> list[str]:
    """Lines of a ``switch`` that spans several, joined to one."""
    joined: list[str] = []
    is_open = False
    for line in lines:
        if is_open:
            joined[-1] += f" {line.strip()}"
            is_open = "]" not in line
        else:
            joined.append(line)
            is_open = line.lstrip().startswith("switch ") and "]" not in line
    return joined


def _result_type(text: str) -> str:
    """The type at the end of ``define internal noundef range(i32 0, 2) i32``."""
    found = re.search(r"(\w+|[{<\[].*[}>\]])\s*$", text)
    assert found is not None, text
    return found.group(1)


def _renamed(function: Function, names: Mapping[str, str]) -> Function:
    """With other names of functions and constants."""
    blocks = [(label, [_with_names(line, names) for line in lines]) for label, lines in function.blocks]
    return Function(names.get(function.name, function.name), function.returns, function.parameters, blocks)


def _numbered(function: Function) -> Function:
    """With values named in the order they are defined: ``%a0`` the parameters, ``%v0`` the others."""
    names = {name: f"%a{k}" for k, (_, name) in enumerate(function.parameters)}
    for line in function.lines():
        defined = re.match(r"(%\S+) = ", line)
        if defined:
            names[defined.group(1)] = f"%v{len(names)}"
    parameters = [(kind, names[name]) for kind, name in function.parameters]

    def renamed(line: str) -> str:
        return _LOCAL_NAME.sub(lambda found: names.get(found.group(), found.group()), line)

    blocks = [(label, [renamed(line) for line in lines]) for label, lines in function.blocks]
    return Function(function.name, function.returns, parameters, blocks)


def _with_names(text: str, names: Mapping[str, str]) -> str:
    return _GLOBAL_NAME.sub(lambda found: f"@{names.get(found.group()[1:], found.group()[1:])}", text)


def _constant(text: str) -> str:
    """A global as a private one. Only constants can be shared by kernels."""
    body = _LINKAGE.sub(lambda found: f"{found.group(1)} = ", text)
    if not re.match(r'^@(?:"[^"]*"|\S+) = (?:private )?(?:unnamed_addr )?constant ', body):
        raise UnsupportedError(
            "a linked function reads a variable of its module",
            {"variable": text.split(" = ")[0]},
            "pass what it reads as an operand",
        )
    return re.sub(r" = (?:private )?(?:unnamed_addr )?constant ", " = private unnamed_addr constant ", body)
