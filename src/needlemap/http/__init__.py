"""The one door to servers: bounded, following nothing, hiding keys."""
