"""The parts of ``benchmarks/service.py``: ``run(options)`` measures, ``lines(result)`` formats the result, and
``failures(result)`` names what failed.
"""
