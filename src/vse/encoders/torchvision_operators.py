"""A cure for one broken installation that is common enough to deserve it.

torchvision registers its operators in a compiled library. When that library does not fit the installed torch (built
for CUDA beside a torch for the CPU, or for another release), ``import torchvision`` fails with "operator
torchvision::nms does not exist", and with it timm and parts of transformers, although neither needs the operator.
Declaring the two missing names, without an implementation, lets the import go on; models and transforms then
work, ``torchvision.ops.nms`` itself stays unusable. This is done only when the plain import fails.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_declared: list[Any] = []  # a torch.library.Library withdraws its declarations when it is collected


@cache
def mend_torchvision() -> bool:
    """Make ``import torchvision`` work where it would fail; True if something had to be declared.

    Call it before the first import of timm or transformers.
    """
    if find_spec("torchvision") is None:
        return False
    try:
        import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    else:
        return False
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(name + _SIGNATURE)
    _declared.append(library)
    # What the failed import left half made would be found instead of being imported anew.
    for module in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[module]
    import_module("torchvision")
    return True
