"""Which kind of model a ``config.json`` describes."""

from __future__ import annotations

from typing import Any, TypeAlias

from vse.configuration import ModelConfig
from vse.hgr.config import HGRConfig
from vse.strict import parse

AnyConfig: TypeAlias = ModelConfig | HGRConfig


def read_config(described: dict[str, Any], where: str) -> AnyConfig:
    """Two towers, or HGR where ``kind`` says so."""
    if described.get("kind") == HGRConfig.model_fields["kind"].default:
        return parse(HGRConfig, described, where)
    return parse(ModelConfig, described, where)
