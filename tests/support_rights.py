"""Permissions that count in tests, whoever runs them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("thread", ctypes.c_int))


class Powers(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


@contextmanager
def ordinary_rights() -> Iterator[None]:
    """Let permissions count for root too: without CAP_DAC_OVERRIDE (1) and CAP_DAC_READ_SEARCH (2), in this thread."""
    libc, header, powers = ctypes.CDLL(None), Header(0x20080522, 0), (Powers * 2)()
    if libc.capget(ctypes.byref(header), powers) != 0:
        pytest.skip("this system cannot say what a process may do")
    before = powers[0].effective
    powers[0].effective = before & ~0b110
    assert libc.capset(ctypes.byref(header), powers) == 0
    try:
        yield
    finally:
        powers[0].effective = before
        libc.capset(ctypes.byref(header), powers)
