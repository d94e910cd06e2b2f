"""The C header of a library."""

from __future__ import annotations

from collections.abc import Iterable

from autojit.core.sizes import is_symbolic
from autojit.export.library import Library
from autojit.export.signature import C_TYPES, Field
from autojit.runtime.library.interface import ABI_VERSION, Code


def header_of(library: Library) -> str:
    """The text: structures, functions, and how they are to be used."""
    name, signature = library.name, library.signature
    guard = f"{name.upper()}_H"
    renamed = library.writer.renamed(library.steps[0])
    names = {own: str(named) for own, named in renamed.items()}

    def described(field: Field) -> str:
        return _described(field, names)

    arguments = [f"    const {f.c_type} *{f.field};  /* {described(f)} */" for f in signature.arguments]
    arguments += [
        f"    int64_t {size.name};  /* extent {size.axis} of {signature.arguments[size.argument].field} */"
        for size in signature.sizes
    ]
    results = [f"    {f.c_type} *{f.field};  /* {described(f)} */" for f in signature.results]
    results += [f"    int64_t {counted};  /* written by {name}_run */" for counted in signature.counted]
    state = [
        f"    {C_TYPES.get(t.dtype.name, 'uint8_t')} *{t.field};  /* {t.name}: {t.dtype.name}{list(t.shape)}"
        f"{', written by every run' if t.is_output else ''} */"
        for t in library.state.tensors
    ]
    codes = [f"    {name.upper()}_{code.name} = {code.value}," for code in Code if code != Code.FIRST_OF_STEP]
    codes += [
        f"    {name.upper()}_ERROR_{k} = {Code.FIRST_OF_STEP.value + k},  /* {_comment(text)} */"
        for k, text in enumerate(library.errors.texts)
    ]
    return _TEXT.format(
        name=name,
        guard=guard,
        abi=ABI_VERSION,
        upper=name.upper(),
        arguments=_lines(arguments),
        results=_lines(results),
        state=_lines(state),
        codes="\n".join(codes),
        conditions=_conditions(library),
    )


def _lines(fields: Iterable[str]) -> str:
    return "\n".join(fields) or "    char unused;  /* a structure of C is not empty */"


def _comment(text: str) -> str:
    return text.replace("*/", "* /")


def _described(field: Field, names: dict[str, str]) -> str:
    shape = list(field.shape) if field.order is None else [field.shape[axis] for axis in field.order]
    extents = ", ".join(_named(extent, names) for extent in shape)
    note = "" if field.order is None else f", axis {field.order} of the function"
    if field.most is not None:
        note += f", room for {_named(field.most, names)} elements"
    return f"{field.name}: {field.dtype.name}[{extents}]{note}"


def _named(extent: int, names: dict[str, str]) -> str:
    text = str(extent)
    return names.get(text, text) if is_symbolic(extent) else text


def _conditions(library: Library) -> str:
    if not library.signature.sizes:
        return ""
    lines = [f" *   {' and '.join(written.conditions)}" for written in library.written]
    return "\n * The sizes of a call fit one of these lines:\n" + "\n".join(lines)


_TEXT = """\
/* {name}: a step that autojit has exported. It needs neither Python nor LLVM, only this file and {name}.so.
 *
 * An instance has state of its own. One thread at a time runs an instance (another one gets {upper}_BUSY);
 * different instances run side by side. The threads of the pool belong to the library, which is never unloaded.
 * Tensors are row-major without gaps, aligned to their elements; results overlap nothing. A run that fails leaves
 * the state as it was.{conditions} */
#ifndef {guard}
#define {guard}

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define {upper}_ABI_VERSION {abi}

/* What a run reads; complex numbers are two elements, 16-bit floats their bits. */
typedef struct {{
{arguments}
}} {name}_arguments;

/* What a run writes, to memory of the caller. */
typedef struct {{
{results}
}} {name}_results;

/* Where an instance keeps its state, which may be read and written between runs. */
typedef struct {{
{state}
}} {name}_state_tensors;

typedef struct {name}_instance {name}_instance;

enum {{
{codes}
}};

/* Compare with {upper}_ABI_VERSION: structures differ between versions. */
int32_t {name}_abi_version(void);

/* A new instance, with the state as it was exported. */
int32_t {name}_create({name}_instance **instance);
void {name}_destroy({name}_instance *instance);

/* One step: 0, or what went wrong. */
int32_t {name}_run({name}_instance *instance, const {name}_arguments *arguments, {name}_results *results);

/* What a code means, and the number that belongs to the last error of a run (as of which element of an index). */
const char *{name}_error_text(int32_t code);
int64_t {name}_error_position({name}_instance *instance);

{name}_state_tensors *{name}_state({name}_instance *instance);
int32_t {name}_reset_state({name}_instance *instance);

/* The state as a safetensors file; loading takes files of the same names, dtypes, shapes and order. */
int32_t {name}_save_state({name}_instance *instance, const char *path);
int32_t {name}_load_state({name}_instance *instance, const char *path);

/* Threads that the instances of this library use together, the caller's included. Results do not depend on it. */
int32_t {name}_set_threads(int32_t count);
int32_t {name}_threads(void);

/* Address space that an instance takes; most of it is touched by large steps alone. */
int64_t {name}_memory_bytes({name}_instance *instance);

/* The description of the library as JSON. */
const char *{name}_manifest(void);

#ifdef __cplusplus
}}
#endif

#endif
"""
