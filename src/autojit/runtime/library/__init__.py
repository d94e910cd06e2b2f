"""What a native library is made of: instances as images, code linked side by side, the C interface, an ELF file."""
