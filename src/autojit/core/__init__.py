"""Ground floor: dtypes, devices, types, source locations, errors, configuration. Imports nothing of autojit."""
