"""Upgrade a collection to another model while the old embeddings are still served.

:mod:`~vse.index.upgrade.run` drives an upgrade, :mod:`~vse.index.upgrade.encode` finds and encodes what the new
generation lacks.
"""

from vse.index.upgrade.run import UpgradeReport, discard_upgrade, upgrade_collection

__all__ = ["UpgradeReport", "discard_upgrade", "upgrade_collection"]
