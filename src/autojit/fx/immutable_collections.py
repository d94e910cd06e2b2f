"""Lists and dicts that nodes keep: changing one in place would leave readers unknown, so it is refused."""

from __future__ import annotations

from typing import Any, NoReturn

from autojit.jit import pytree

__all__ = ["immutable_dict", "immutable_list"]


def _refused(self: object, *args: object, **kwargs: object) -> NoReturn:
    raise NotImplementedError(
        f"'{type(self).__name__}' object does not support mutation. If you are attempting to modify the kwargs or args "
        "of a torch.fx.Node object, instead create a new copy of it and assign the copy to the node: "
        "new_args = ...  # copy and mutate args, node.args = new_args"
    )


class immutable_list(list[Any]):
    """A list that cannot be changed."""

    __delitem__ = __iadd__ = __imul__ = __setitem__ = append = clear = extend = insert = pop = remove = reverse = (
        sort
    ) = _refused

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (tuple(self),)


class immutable_dict(dict[Any, Any]):
    """A dict that cannot be changed."""

    __delitem__ = __ior__ = __setitem__ = clear = pop = popitem = setdefault = update = _refused

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (tuple(self.items()),)


pytree.register(immutable_list, lambda parts: (list(parts), ()), lambda parts, keys: immutable_list(parts))
pytree.register(
    immutable_dict,
    lambda parts: (list(parts.values()), tuple(parts)),
    lambda parts, keys: immutable_dict(zip(keys, parts, strict=True)),
)
