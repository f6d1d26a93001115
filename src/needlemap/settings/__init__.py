"""Every setting once, and how they are read: presets, files, flags, and the older tools' names."""
