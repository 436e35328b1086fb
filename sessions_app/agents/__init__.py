"""The agents whose sessions Redline reads: one folder each, with everything specific to its files.

All other code uses the `Agent` objects in `registry`; `base` defines their protocol.
"""
