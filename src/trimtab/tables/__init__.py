"""Tables in any form: read and checked, ids as codes, and back to the caller's own kind."""
