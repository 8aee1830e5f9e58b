"""serve --testing: a temporary catalog that other projects' tests control with requests."""
