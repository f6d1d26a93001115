"""What `needlemap check` tries on a server: ways of asking, and tests that set them beside each other."""
