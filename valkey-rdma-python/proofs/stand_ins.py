"""Stand-ins for torch and for LMCache's compiled module, for machines that cannot have them.

LMCache's adapters are Python, but they import torch, and ``lmcache.lmcache_native`` is linked with libtorch. Of both, the adapters of
native connectors use the class ``Bitmap`` only. Everything else here is a name that can be imported.
"""

import sys
import types
from unittest import mock


class Names(types.ModuleType):
    """A module in which every name exists. Devices are not available."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = mock.MagicMock(name=name)
        value.is_available.return_value = False
        value.device_count.return_value = 0
        return value


class Bitmap:
    """Which of a number of keys are set."""

    def __init__(self, size):
        self.size, self.bits = size, set()

    def set(self, index):
        self.bits.add(index)

    def test(self, index):
        return index in self.bits

    def popcount(self):
        return len(self.bits)


def install():
    """Makes the imports of LMCache work, if torch is missing. Returns whether they are stand-ins."""
    try:
        import torch  # noqa: F401
        import lmcache.lmcache_native  # noqa: F401

        return False
    except ImportError as missing:
        print(f"stand-ins for torch and lmcache.lmcache_native, because: {missing}")
    for name in [name for name in sys.modules if name == "lmcache" or name.startswith("lmcache.")]:
        del sys.modules[name]
    torch = Names("torch")
    for name in ("Tensor", "dtype", "device"):
        setattr(torch, name, type(name, (), {}))
    torch.Size = tuple
    sys.modules["torch"] = torch
    for name in ("cuda", "distributed", "nn", "utils", "utils.dlpack"):
        sys.modules[f"torch.{name}"] = Names(f"torch.{name}")
    native = Names("lmcache.lmcache_native")
    native.Bitmap = Bitmap
    sys.modules["lmcache.lmcache_native"] = native
    return True
