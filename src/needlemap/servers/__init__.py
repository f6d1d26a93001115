"""Is a server right? `check`, `storm`, `ab`, and the gauge that judges them."""
