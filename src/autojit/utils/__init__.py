"""Utilities beside the tensor API: ``data`` loads batches, ``checkpoint`` computes again what backward needs, ``hooks``
has the handles of hooks, ``dlpack`` lends memory to other libraries, ``progress`` is a bar, ``image`` shows tensors.

They are imported on first use.
"""

from autojit.core.lazy_modules import LazyNames as _LazyNames
from autojit.core.lazy_modules import provide as _provide

__getattr__ = _LazyNames(
    __name__,
    {
        "progress": "autojit.utils.progress_bar",
        "image": "autojit.utils.images",
        "image_grid": "autojit.utils.images",
        "swap_tensors": "autojit.utils.swapped",
    },
    modules="_foreach_utils _pytree benchmark checkpoint data dlpack flop_counter hooks",
)
_provide(
    "autojit.utils", {"model_zoo": "autojit.hub"}, {"model_zoo": {"load_url": "autojit.hub:load_state_dict_from_url"}}
)
