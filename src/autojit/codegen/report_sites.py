"""The numbers by which kernels report what they found: what writes them and who reads the reports agree here.

Sites from ``ACCESS_SITE`` on are accesses of a checked kernel, those from ``FAILURE_SITE`` on linked functions that
failed (word 1 is then the failure's number), others are look-ups (1, 2, ...).
"""

from __future__ import annotations

ACCESS_SITE = 1 << 16
FAILURE_SITE = 1 << 15
