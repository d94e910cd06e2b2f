"""``SummaryWriter``: curves, histograms, images and texts for TensorBoard, in the files of the package ``tensorboard``.

That package (``pip install tensorboard``) writes the files and knows their format; here are torch's names for it, and
what becomes of tensors. It is imported when the first writer is made.
"""

from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from importlib import import_module
from types import TracebackType
from typing import Any

import numpy as np

import autojit as aj
from autojit.core.lazy_modules import provide as _provide
from autojit.tensor import Tensor

__all__ = ["SummaryWriter"]

_provide("autojit.utils", {"tensorboard.writer": "tensorboard"})

_FORMAT = "tensorboard.compat.proto"


def _part(name: str) -> Any:
    """A module of ``tensorboard``.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"utils.tensorboard writes with the package tensorboard, which is not complete here ({error}): "
            "pip install tensorboard",
            name=error.name,
        ) from None


def _array(value: Any) -> Any:
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        value = value.float() if value.dtype in (aj.bfloat16, aj.float16) else value
        return value.numpy()
    return np.asarray(value)


def _number(value: Any) -> float:
    found = _array(value)
    if found.size != 1:
        raise AssertionError("scalar should be 0D")
    return float(found.reshape(()))


def _default_edges() -> Any:
    """Edges of histograms as TensorBoard has them: a tenth apart in size, of either sign, and 0."""
    positive = 1e-12 * 1.1 ** np.arange(774)
    positive = positive[positive < 1e20]
    return np.concatenate([-positive[::-1], [0.0], positive])


class SummaryWriter:
    """Writes events of a run into a directory that ``tensorboard --logdir runs`` shows; torch's class of this name.

    Args:
        log_dir: where the files go; by default ``runs/<date>_<machine><comment>``.
        comment: the end of that name.
        purge_step: what an earlier run wrote from this step on is hidden.
        max_queue, flush_secs: how many events, and for how long, may wait to be written.
        filename_suffix: the end of the file's name.

    Raises:
        ModuleNotFoundError: ``tensorboard`` is not installed.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            now = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = os.fspath(log_dir)
        self.purge_step = purge_step
        self.max_queue, self.flush_secs, self.filename_suffix = max_queue, flush_secs, filename_suffix
        self._summary = _part(f"{_FORMAT}.summary_pb2")
        self._event = _part(f"{_FORMAT}.event_pb2")
        self._files: dict[str, Any] = {}
        self._file(self.log_dir)
        if purge_step is not None:
            status = self._event.SessionLog(status=self._event.SessionLog.START)
            self._write(self.log_dir, self._event.Event(session_log=status), purge_step, None)

    def _file(self, directory: str) -> Any:
        if directory not in self._files:
            writer = _part("tensorboard.summary.writer.event_file_writer").EventFileWriter
            self._files[directory] = writer(directory, self.max_queue, self.flush_secs, self.filename_suffix)
        return self._files[directory]

    def _write(self, directory: str, event: Any, step: Any, walltime: float | None) -> None:
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self._file(directory).add_event(event)

    def _add(self, tag: str, step: Any, walltime: float | None, directory: str | None = None, **content: Any) -> None:
        value = self._summary.Summary.Value(tag=tag.lstrip("/"), **content)
        event = self._event.Event(summary=self._summary.Summary(value=[value]))
        self._write(self.log_dir if directory is None else directory, event, step, walltime)

    def get_logdir(self) -> str:
        """The directory."""
        return self.log_dir

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: int | None = None, walltime: float | None = None,
        new_style: bool = False, double_precision: bool = False,
    ) -> None:  # fmt: skip
        """One point of a curve."""
        number = _number(scalar_value)
        if not (new_style or double_precision):
            self._add(tag, global_step, walltime, simple_value=number)
            return
        kind = "DT_DOUBLE" if double_precision else "DT_FLOAT"
        numbers = {"double_val" if double_precision else "float_val": [number]}
        self._add(tag, global_step, walltime, tensor=self._tensor(kind, **numbers), metadata=self._plugin("scalars"))

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """A point of each of several curves in one diagram, which are runs of their own below the directory."""
        for tag, value in tag_scalar_dict.items():
            below = os.path.join(self.log_dir, f"{main_tag.replace('/', '_')}_{tag}")
            self._add(main_tag, global_step, walltime, below, simple_value=_number(value))

    def add_histogram(
        self, tag: str, values: Any, global_step: int | None = None, bins: Any = "tensorflow",
        walltime: float | None = None, max_bins: int | None = None,
    ) -> None:  # fmt: skip
        """How values are distributed; ``bins`` as of ``numpy.histogram``, or TensorBoard's own."""
        found = _array(values).reshape(-1).astype(np.float64)
        if found.size == 0:
            raise ValueError("The input has no element.")
        counts, edges = np.histogram(found, bins=_default_edges() if bins == "tensorflow" else bins)
        if max_bins is not None and len(counts) > max_bins:
            joined = -(-len(counts) // max_bins)
            counts = np.add.reduceat(counts, np.arange(0, len(counts), joined))
            edges = np.append(edges[:-1][::joined], edges[-1])
        filled = np.flatnonzero(counts)
        first, last = (int(filled[0]), int(filled[-1]) + 1) if filled.size else (0, 1)
        shown = self._summary.HistogramProto(
            min=found.min(), max=found.max(), num=found.size, sum=found.sum(), sum_squares=found @ found,
            bucket_limit=[edges[first], *edges[first + 1 : last + 1]], bucket=[0, *counts[first:last]],
        )  # fmt: skip
        self._add(tag, global_step, walltime, histo=shown)

    def add_image(
        self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:  # fmt: skip
        """An image of bytes, or of floats from 0 to 1; ``dataformats`` names the axes (C, H, W in any order)."""
        array = _array(img_tensor)
        if array.ndim != len(dataformats):
            raise AssertionError(f"size of input tensor and input format are different: {array.shape}, {dataformats}")
        axes = dataformats.upper()
        if "C" not in axes:
            array, axes = array[..., None], axes + "C"
        array = array.transpose([axes.index(axis) for axis in "HWC"])
        if array.dtype != np.uint8:
            array = (array * 255).clip(0, 255).astype(np.uint8)
        height, width, depth = array.shape
        text = io.BytesIO()
        _part("PIL.Image").fromarray(array[..., 0] if depth == 1 else array).save(text, format="PNG")
        image = self._summary.Summary.Image(
            height=height, width=width, colorspace=depth, encoded_image_string=text.getvalue()
        )
        self._add(tag, global_step, walltime, image=image)

    def add_images(
        self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:  # fmt: skip
        """Several images beside each other, in rows of 8."""
        array = _array(img_tensor)
        array = array.transpose([dataformats.upper().index(axis) for axis in "NHWC"])
        columns = min(8, len(array))
        rows = -(-len(array) // columns)
        shown = np.zeros((rows * columns, *array.shape[1:]), array.dtype)
        shown[: len(array)] = array
        grid = shown.reshape(rows, columns, *array.shape[1:]).swapaxes(1, 2)
        grid = grid.reshape(rows * array.shape[1], columns * array.shape[2], array.shape[3])
        self.add_image(tag, grid, global_step, walltime, "HWC")

    def add_figure(
        self, tag: str, figure: Any, global_step: int | None = None, close: bool = True, walltime: float | None = None
    ) -> None:
        """A figure of matplotlib's, or several, as an image."""
        for each in figure if isinstance(figure, list) else [figure]:
            canvas = _part("matplotlib.backends.backend_agg").FigureCanvasAgg(each)
            canvas.draw()
            self.add_image(tag, np.asarray(canvas.buffer_rgba())[..., :3], global_step, walltime, "HWC")
            if close:
                _part("matplotlib.pyplot").close(each)

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """A text, which is shown as Markdown."""
        tensor = self._tensor("DT_STRING", string_val=[text_string.encode()])
        self._add(f"{tag}/text_summary", global_step, walltime, tensor=tensor, metadata=self._plugin("text"))

    def add_hparams(
        self, hparam_dict: Mapping[str, Any], metric_dict: Mapping[str, Any], hparam_domain_discrete: Any = None,
        run_name: str | None = None, global_step: int | None = None,
    ) -> None:  # fmt: skip
        """The hyper-parameters of a run and what they led to, a run of its own below the directory."""
        if not isinstance(hparam_dict, dict) or not isinstance(metric_dict, dict):
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        api = _part("tensorboard.plugins.hparams.api_pb2")
        kept = _part("tensorboard.plugins.hparams.plugin_data_pb2")
        below = os.path.join(self.log_dir, str(time.time()) if run_name is None else run_name)
        given = {name: _number(v) if isinstance(v, Tensor) else v for name, v in hparam_dict.items()}
        kinds = {bool: api.DATA_TYPE_BOOL, str: api.DATA_TYPE_STRING}
        experiment = api.Experiment(
            hparam_infos=[
                api.HParamInfo(name=name, type=kinds.get(type(v), api.DATA_TYPE_FLOAT64)) for name, v in given.items()
            ],
            metric_infos=[api.MetricInfo(name=api.MetricName(tag=name)) for name in metric_dict],
        )
        start, end = kept.SessionStartInfo(), kept.SessionEndInfo(status=api.STATUS_SUCCESS)
        for name, v in given.items():
            field = "bool_value" if isinstance(v, bool) else "string_value" if isinstance(v, str) else "number_value"
            setattr(start.hparams[name], field, v)
        for part, message in (("experiment", experiment), ("session_start_info", start), ("session_end_info", end)):
            content = kept.HParamsPluginData(version=0, **{part: message}).SerializeToString()
            self._add(f"_hparams_/{part}", None, None, below, metadata=self._plugin("hparams", content))
        for name, value in metric_dict.items():
            self._add(name, global_step, None, below, simple_value=_number(value))

    def _tensor(self, kind: str, **content: Any) -> Any:
        shape = _part(f"{_FORMAT}.tensor_shape_pb2").TensorShapeProto()
        return _part(f"{_FORMAT}.tensor_pb2").TensorProto(dtype=kind, tensor_shape=shape, **content)

    def _plugin(self, name: str, content: bytes = b"") -> Any:
        data = self._summary.SummaryMetadata.PluginData(plugin_name=name, content=content)
        return self._summary.SummaryMetadata(plugin_data=data)

    def _each(self, action: Callable[[Any], None]) -> None:
        for file in self._files.values():
            action(file)

    def flush(self) -> None:
        """Write what waits."""
        self._each(lambda file: file.flush())

    def close(self) -> None:
        """Write what waits, and end; the next event begins a new file."""
        self._each(lambda file: file.close())
        self._files.clear()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
