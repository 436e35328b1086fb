"""The agents whose sessions Redline reads: one folder each, with everything specific to its files.

All other code uses the `Agent` objects in `registry`; `base` says what they consist of. The modules in an agent's
folders `pure` and `edge` are composed by its `agent`; what agents share is in the folders of these names beside this
module.
"""
