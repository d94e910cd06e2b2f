"""Layouts: how the elements of a tensor are kept."""

from __future__ import annotations

from dataclasses import dataclass

from autojit.core.package_name import full_name


@dataclass(frozen=True, slots=True)
class Layout:
    """Dense in strided memory, or the non-zero elements with their places."""

    name: str

    def __repr__(self) -> str:
        return full_name(self.name)


strided = Layout("strided")
sparse_coo = Layout("sparse_coo")
sparse_csr = Layout("sparse_csr")
sparse_csc = Layout("sparse_csc")
sparse_bsr = Layout("sparse_bsr")
sparse_bsc = Layout("sparse_bsc")
