"""``FloatStorage`` and its like: names for storages of one dtype, as constructors and in ``isinstance``."""

from __future__ import annotations

from autojit.core import dtypes
from autojit.core.device import DeviceLike
from autojit.core.dtypes import DType
from autojit.core.top_level import top_level
from autojit.functions.storages import AnyStorage, Content, TypedStorage


class StorageKind(type):
    """The class of ``FloatStorage`` and its like: calling one makes a storage, any of the dtype is an instance."""

    dtype: DType

    def __call__(
        cls, *content: Content, wrap_storage: AnyStorage | None = None, device: DeviceLike = None
    ) -> TypedStorage:
        return TypedStorage(*content, wrap_storage=wrap_storage, dtype=cls.dtype, device=device)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TypedStorage) and instance.dtype is cls.dtype

    def __repr__(cls) -> str:
        return f"<class 'autojit.{cls.__name__}'>"


def _kind(name: str, dtype: DType) -> StorageKind:
    said = {"dtype": dtype, "__module__": __name__, "__doc__": f"Memory of {dtype.name} elements."}
    return top_level(StorageKind(name, (), said))


FloatStorage = _kind("FloatStorage", dtypes.float32)
DoubleStorage = _kind("DoubleStorage", dtypes.float64)
HalfStorage = _kind("HalfStorage", dtypes.float16)
BFloat16Storage = _kind("BFloat16Storage", dtypes.bfloat16)
ByteStorage = _kind("ByteStorage", dtypes.uint8)
CharStorage = _kind("CharStorage", dtypes.int8)
ShortStorage = _kind("ShortStorage", dtypes.int16)
IntStorage = _kind("IntStorage", dtypes.int32)
LongStorage = _kind("LongStorage", dtypes.int64)
BoolStorage = _kind("BoolStorage", dtypes.bool_)
ComplexFloatStorage = _kind("ComplexFloatStorage", dtypes.complex64)
ComplexDoubleStorage = _kind("ComplexDoubleStorage", dtypes.complex128)

KINDS: dict[str, StorageKind] = {name: kind for name, kind in globals().items() if isinstance(kind, StorageKind)}
