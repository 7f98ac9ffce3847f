"""Plain facts about what the store holds: the same for the command line, the API and the pages, with secrets masked."""
