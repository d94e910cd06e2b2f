"""What ranks run is no module to import."""

from __future__ import annotations

collect_ignore = ["fails_on_ranks.py", "killed_on_ranks.py", "loses_a_rank.py", "written_for_torch.py"]
