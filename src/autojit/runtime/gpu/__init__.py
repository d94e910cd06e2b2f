"""Steps on GPUs: the driver behind one interface, memory, machine code, launches and graphs."""
