"""The script that made the fixtures needs PyTorch, which the tests do not."""

collect_ignore = ["make_torch_fixtures.py"]
