"""The endpoints. ``/api/v1`` stays compatible; a breaking change becomes ``/api/v2``."""
