"""Which module has which name that is imported when first used. Written by ``make index``: do not edit."""

from __future__ import annotations

FUNCTIONS = {
    "_C": "_VF _unique _unique2",
    "amp.autocast_mode": """
        autocast clear_autocast_cache get_autocast_cpu_dtype get_autocast_dtype is_autocast_cache_enabled
        is_autocast_cpu_enabled is_autocast_enabled set_autocast_cache_enabled set_autocast_dtype
        set_autocast_enabled""",
    "amp.grad_scaler": "GradScaler",
    "control_flow.associative": "associative_scan",
    "control_flow.conditions": "cond",
    "control_flow.loops": "scan while_loop",
    "core.absent_dtypes": "chalf complex32 qint32 qint8 quint2x4 quint4x2 quint8",
    "func.batches": "vmap",
    "func.derivatives": "jvp",
    "functions.copies": """
        alias_copy as_strided_copy ccol_indices_copy col_indices_copy crow_indices_copy detach_copy
        diagonal_copy expand_copy fill indices_copy permute_copy row_indices_copy select_copy slice_copy
        slice_inverse split_copy split_with_sizes_copy squeeze_copy t_copy transpose_copy unbind_copy
        unfold_copy unsqueeze_copy values_copy view_as_complex_copy view_as_real_copy view_copy""",
    "functions.histograms": "histogram histogramdd",
    "functions.integers": "frexp gcd gcd_ lcm lcm_ nonzero_static unravel_index",
    "functions.norms": "frobenius_norm hash_tensor norm_except_dim",
    "functions.order_statistics": "nanquantile",
    "functions.printing": "set_printoptions",
    "functions.removed": "eig lstsq matrix_rank solve symeig",
    "functions.segments": "_segment_reduce segment_reduce",
    "functions.settings": """
        compiled_with_cxx11_abi get_deterministic_debug_mode get_float32_matmul_precision
        get_num_interop_threads has_lapack has_mkl has_openmp has_spectral init_num_threads is_distributed
        is_storage set_deterministic_debug_mode set_float32_matmul_precision set_flush_denormal
        set_num_interop_threads typename""",
    "functions.storage_kinds": """
        BFloat16Storage BoolStorage ByteStorage CharStorage ComplexDoubleStorage ComplexFloatStorage
        DoubleStorage FloatStorage HalfStorage IntStorage LongStorage ShortStorage""",
    "functions.storages": "TypedStorage UntypedStorage",
    "functions.symbolic": "sym_float sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum",
    "io.saving": "load save",
    "jit.eager_mode": "eager",
    "jit.scripting": "fork wait",
    "nn.functional.activation": "celu celu_ hardshrink selu selu_ threshold threshold_",
    "nn.functional.adaptive_pooling": "adaptive_avg_pool1d",
    "nn.functional.convolution": "conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d",
    "nn.functional.distance": "cosine_similarity pairwise_distance",
    "nn.functional.linear": "bilinear",
    "nn.functional.normalization": "rms_norm",
    "nn.functional.pooling": "avg_pool1d max_pool1d max_pool1d_with_indices max_pool2d max_pool3d",
    "nn.functional.vision": "channel_shuffle pixel_shuffle pixel_unshuffle",
    "numba_ops.definition": "op",
    "runtime.pool": "get_num_threads set_num_threads",
    "sparse.compressed": """
        dsmm hspmm saddmm smm sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_csc_tensor
        spmm sspaddmm""",
    "sparse.construct": "sparse_coo_tensor sparse_csr_tensor",
    "special.functions": "i0 i0_",
    "top_level.compiling": "compile",
    "top_level.counts": "binomial poisson",
    "top_level.devices": "get_default_device get_device_module set_default_device",
    "top_level.dropout_forms": """
        alpha_dropout alpha_dropout_ dropout dropout_ feature_alpha_dropout feature_alpha_dropout_
        feature_dropout feature_dropout_""",
    "top_level.factors": "geqrf lu lu_solve lu_unpack orgqr ormqr",
    "top_level.frames": "istft stft",
    "top_level.network": """
        adaptive_max_pool1d affine_grid_generator batch_norm binary_cross_entropy_with_logits constant_pad_nd
        convolution cosine_embedding_loss ctc_loss embedding embedding_bag grid_sampler grid_sampler_2d
        grid_sampler_3d group_norm hinge_embedding_loss instance_norm kl_div layer_norm margin_ranking_loss
        native_batch_norm native_channel_shuffle native_dropout native_group_norm native_layer_norm
        poisson_nll_loss rrelu rrelu_ triplet_margin_loss""",
    "top_level.quantization": "fake_quantize_per_channel_affine fake_quantize_per_tensor_affine",
    "top_level.recurrent": "gru gru_cell lstm lstm_cell rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell",
    "top_level.windows": "bartlett_window blackman_window hamming_window hann_window kaiser_window",
}  # fmt: skip
METHODS = {
    "array_api.namespace": "__array_namespace__",
    "autograd.backward_method": "backward",
    "functions.copies": "slice_inverse",
    "functions.histograms": "histogram",
    "functions.integers": "frexp gcd gcd_ lcm lcm_ nonzero_static",
    "functions.norms": "hash_tensor",
    "functions.order_statistics": "nanquantile",
    "functions.removed": "eig lstsq solve symeig",
    "functions.settings": "is_distributed",
    "sparse.compressed": "smm sspaddmm to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc",
    "special.functions": "i0 i0_",
    "top_level.factors": "geqrf lu lu_solve orgqr ormqr",
    "top_level.frames": "istft stft",
    "top_level.tensor_methods": """
        __div__ __idiv__ __rdiv__ __reversed__ const_data_ptr dim_order hardshrink map2_ module_load pin_memory
        record_stream storage_type""",
}  # fmt: skip
