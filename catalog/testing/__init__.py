"""serve --testing: a temporary catalog that the tests of other projects control with requests."""
