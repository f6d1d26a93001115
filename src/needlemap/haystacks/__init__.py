"""Where background texts come from: sources of documents."""
