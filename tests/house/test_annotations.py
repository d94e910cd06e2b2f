"""Annotations of classes that users derive from can be read: libraries ask ``typing.get_type_hints`` for them."""

from __future__ import annotations

import inspect
import typing

import autojit as aj


def test_annotations_of_public_classes_name_what_is_there() -> None:
    spaces = (aj, aj.nn, aj.optim, aj.optim.lr_scheduler, aj.distributions, aj.utils.data, aj.autograd, aj.library)
    classes = {value for space in spaces for value in vars(space).values() if inspect.isclass(value)}
    classes |= {aj.Tensor, aj.nn.Module, aj.nn.Parameter, aj.autograd.Function}
    wrong = []
    for cls in classes:
        try:
            typing.get_type_hints(cls)
        except NameError as error:
            wrong.append(f"{cls.__module__}.{cls.__name__}: {error}")
    assert len(classes) > 300
    assert not wrong
