"""The estimators of posterax with nothing set, beside what else one would take for a table."""
