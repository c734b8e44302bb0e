"""Answers without chains: conjugate, enumerated, or by weighted draws."""
