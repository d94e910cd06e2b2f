"""An emulated NVIDIA device: PTX in NumPy, on memory that the host cannot reach, checked as it runs."""
