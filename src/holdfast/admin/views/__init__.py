"""Views of the store, with secrets masked: the same for the command line, the pages and the API."""
