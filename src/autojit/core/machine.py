"""What passes and schedules may know of where a graph runs, as data.

A back end (``autojit.backend``) gives its `Machine` to every stage that decides by such numbers. None of them is a
constant of a pass or of the schedule, so a second machine needs no second pass, and tests make small graphs take the
ways of large ones by giving another machine.
"""

from __future__ import annotations

from autojit.core.dtypes import DType
from autojit.core.records import record
from autojit.core.sizes import size_max


@record
class Bands:
    """When kernels that walk the same rows run slice by slice (``schedule.bands``)."""

    slice_bytes: int
    """Working set of one slice."""
    least_slices: int
    """Enough of them for the workers and for balance."""
    most_slices: int
    contracted_bytes: int
    """Most of one slice's partial product."""
    least_bytes: int
    """Values inside a band: below, everything is in cache anyway."""
    least_open_kernels: int
    """Kernels of a band whose number of rows is open: few rows gain nothing, so many must gain much."""
    resident_bytes: int
    """A right operand of this size is read in place, a larger one is packed by every slice."""
    rows_per_packing: int
    """Rows of a slice that pay for packing it."""
    least_grains: int
    """Grains of a slice, where the number of rows is open and they fit the cache."""


@record
class Attending:
    """Which attention has kernels of its own; other attention is made of products and loops."""

    dtypes: frozenset[DType]
    most_width: int | None
    """Elements of a key, and of a value; None: any number."""
    least_table_bytes: int = 0
    """Scores of one matrix: smaller ones stay in a cache, where products and loops do as well. In proportion more
    where keys are wide."""
    usual_width: int = 1
    """Elements of a key that ``least_table_bytes`` is about."""
    causal_gain: int = 1
    """A kernel computes about half of causal scores, and of others what a table of blocks lists: that pays for
    computing them twice in tables this much smaller."""
    least_bytes: int = 0
    """Scores of all matrices: more are not kept for the derivative, however small each matrix is."""
    of_functions: bool = False
    """Whether kernels compute functions of scores inside."""


@record
class Transforms:
    """Which Fourier transforms have kernels of their own: along one axis, of few points or as parts of larger ones."""

    most_points: int
    """More are a table of lines, whose columns and rows are transformed."""
    largest_prime: int
    """A number of points with a larger prime factor is computed by convolution."""
    least_lines: int
    """Fewer lines than this are a table, too, where they have ``least_points``: lines are what runs side by side."""
    least_points: int
    least_neighbours: int
    """Fewer lines side by side in memory are brought apart first: vectors of them would stay empty."""


@record
class FewRows:
    """Which folds of few long rows are made of folds of their parts (``passes.split_folds``)."""

    rows: int
    """As many keep the machine busy."""
    elements: int
    """Rows of no more are left whole."""
    least: int
    """Elements of a part."""


@record
class Machine:
    """The numbers of one machine, or of one kind of them where they differ little."""

    kind: str
    """The device type whose graphs run there."""
    alignment: int
    """Bytes: where temporaries begin."""
    product_dtypes: frozenset[DType]
    """Dtypes that matrix products are made for; halves besides are computed in float32."""
    dot_dtypes: frozenset[DType]
    """Halves that the machine multiplies into float32: their products are of these dtypes, with float32 results."""
    product_batch_axes: int
    """Strides of the batch that a product's kernel takes."""
    most_buffers: int
    """Buffers that one loop nest may touch."""
    small_domain: int
    """Elements: below, a kernel costs less than making others wait for what it would be fused with."""
    expansion: int
    """A cheap node this much larger than what it reads is computed where it is read."""
    least_parts: int
    """Slices of a cheap value that is read in slices only, from which on it is computed where they are read."""
    computes_padded: bool
    """Whether a kernel that reads a padding computes what is padded, where that moves less memory."""
    many_blocks: int
    """This many blocks of memory are joined by copying each, where they are of ``block_bytes`` on average."""
    block_bytes: int
    accumulated_bytes: int
    """Larger products that are added to a product are accumulated into its memory."""
    hoisted_bytes: int
    """Most of what is computed before a loop for all its steps at once."""
    turned_bytes: int
    """Larger matrices are not turned before a loop for its products: it costs what a hundred of them gain."""
    turned_steps: int
    """Products after which turning the matrix first has paid."""
    bands: Bands | None
    """None: rows are not sliced."""
    batch_bytes: int
    """Memory touched: below, independent kernels are not started together."""
    value_bytes: int = 0
    """What the host computes goes to kernels by value up to this size, and is copied above."""
    turns_loops: bool = False
    """Whether conditions of branches and loops may stay on the device, which then decides without the host."""
    attention: Attending | None = None
    transforms: Transforms | None = None
    """None: transforms are called back."""
    few_rows: FewRows | None = None
    """None: kernels part rows among threads by themselves."""
    least_columns: int = 0
    """So many columns side by side: positions of extremes are two folds (``passes.column_positions``); 0: never."""
    parts_log_sums: bool = False
    """Whether running logarithms of sums along lines are vectors of exponentials with a recurrence between them."""
    loosens_products: bool = False
    """Whether matrix products with one row, column or step are loops, which fuse with others."""
    least_sparse_bytes: int = 0
    """From this size on a table of which a step changes few rows is updated in these alone; 0: always as a whole."""
    epilogue_expressions: int = 0
    """Loops of at most this many expressions over a product's elements become part of its kernel; 0: none do."""

    def aligned(self, size_bytes: int) -> int:
        """Rounded up to the alignment; an empty buffer still has an address."""
        return size_max(self.alignment, -(-size_bytes // self.alignment) * self.alignment)
