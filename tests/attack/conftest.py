"""Nothing here is a test of its own: ``tests/test_attack.py`` runs what is in this folder."""

collect_ignore_glob = ["*.py"]
