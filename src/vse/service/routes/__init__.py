"""The interface, one module for each part. What ``/api/v1`` promises stays; what breaks it becomes ``/api/v2``."""
