"""What people look at: terminal map, figure, tables. Pure functions of a map, except what writes files."""
