"""Users' lists and dictionaries that go on to C for what they hold, in any of the ways there are."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import autojit as aj
from tests.jit.test_ways_to_names import Jit, same_everywhere


def by_super(base: type) -> type:
    class Made(base):  # type: ignore[misc]
        def __getitem__(self, key: Any) -> Any:
            return super().__getitem__(key)

        def __contains__(self, key: Any) -> bool:
            return bool(super().__contains__(key))

        def __len__(self) -> int:
            return int(super().__len__())

        def __iter__(self) -> Iterator[Any]:
            return iter(super().__iter__())

        def __bool__(self) -> bool:
            return len(self) > 1

    return Made


def by_base(base: type) -> type:
    class Made(base):  # type: ignore[misc]
        def __getitem__(self, key: Any) -> Any:
            return base.__getitem__(self, key)  # type: ignore[attr-defined]

        def __len__(self) -> int:
            return int(base.__len__(self))  # type: ignore[attr-defined]

    return Made


def by_get(base: type) -> type:
    class Made(base):  # type: ignore[misc]
        def __getitem__(self, key: Any) -> Any:
            return base.get(self, key, 7.0)  # type: ignore[attr-defined]

        def get(self, key: Any, default: Any = None) -> Any:
            return super().get(key, default)

    return Made


def doubled(base: type) -> type:
    class Made(base):  # type: ignore[misc]
        def __getitem__(self, key: Any) -> Any:
            return base.__getitem__(self, key) * 2  # type: ignore[attr-defined]

    return Made


TABLES = (dict, OrderedDict, defaultdict)
USES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "item": lambda d, x, k: x * d[k],
    "length": lambda d, x, k: x * len(d),
    "contains": lambda d, x, k: x * (2 if k in d else 3),
    "truth": lambda d, x, k: x * (2 if d else 3),
    "walk": lambda d, x, k: x * sum(1 for _ in d),
    "get": lambda d, x, k: x * d.get(k, 5.0),
    "absent": lambda d, x, k: x * d["absent"],
    "pop": lambda d, x, k: x * d.pop("q", 4.0),
    "items": lambda d, x, k: x * sum(v for _, v in d.items()),
}
OF_LISTS = ("item", "length", "contains", "truth", "walk")
CASES = [
    (base, way, use)
    for base in (*TABLES, list, deque)
    for way in ((by_super, by_base, by_get, doubled) if base in TABLES else (by_super, by_base, doubled))
    for use in (USES if base in TABLES else OF_LISTS)
]


@pytest.mark.parametrize(("base", "way", "use"), CASES)
def test_methods_that_go_on_to_c_are_run_once_and_followed(base: type, way: Callable[[type], type], use: str) -> None:
    def program(jit: Jit) -> Iterator[Any]:
        kept: Any = way(base)()
        is_table = isinstance(kept, dict)
        kept.update(a=1.0, b=2.0) if is_table else kept.extend([1.0, 2.0, 3.0])
        key: Any = "a" if is_table else 1
        step = jit(lambda x: USES[use](kept, x, key))

        def seen() -> Any:
            try:
                return step(aj.ones(1)).item()
            except (KeyError, IndexError) as error:
                return type(error)

        yield from (seen() for _ in range(2))
        kept[key] = 5.0
        yield seen()
        kept.update(c=8.0, q=3.0) if is_table else kept.append(8.0)
        yield from (seen() for _ in range(2))
        kept.clear()
        yield from (seen() for _ in range(2))

    same_everywhere(program)
