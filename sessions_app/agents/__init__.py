"""The agents whose sessions Redline reads: one folder each, with everything specific to its files.

All other code uses the `Agent` objects in `registry`; `base` defines their parts. The `agent` module of each agent
combines the modules in its folders `pure` and `edge`; code shared by agents is in the folders of these names beside
this module.
"""
