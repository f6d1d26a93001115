"""What each command of the command line does; imported when it is called."""
