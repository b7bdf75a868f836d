"""Made by src/python/generate."""
