"""Programs for those who work on posterax: pages of figures, versions, what a release holds."""
