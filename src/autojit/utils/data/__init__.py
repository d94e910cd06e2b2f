"""Data sets, samplers and the DataLoader, as torch.utils.data."""

from autojit.core.lazy_modules import list_names as _list_names
from autojit.utils.data import torch_paths as torch_paths
from autojit.utils.data.collate import default_collate as default_collate
from autojit.utils.data.collate import default_convert as default_convert
from autojit.utils.data.dataloader import *
from autojit.utils.data.datapipes import *
from autojit.utils.data.dataset import *
from autojit.utils.data.distributed import DistributedSampler as DistributedSampler
from autojit.utils.data.sampler import *

_list_names(globals())
