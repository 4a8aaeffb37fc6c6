"""An example plugin of vse-infinity."""
