"""The parts of ``benchmarks/service.py``: ``run(options)`` measures, ``lines(result)`` tells it, ``failures(result)``
names what must not be."""
