from typing import Any

# Addresses and sizes are integers; _native.py says what they are of.
def __getattr__(name: str) -> Any: ...
