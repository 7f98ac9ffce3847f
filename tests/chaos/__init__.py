"""The fault harness: loads, nemeses, a history of what was asked and answered, and a checker of I1 to I16.

``python -m tests.chaos --help`` lists the campaigns; CONTRIBUTING.md says how to replay a failing seed.
"""
