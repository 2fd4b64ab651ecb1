"""`--branch`: an overlay whose commits are brought to a branch of the person's repository, by objects and ref only."""
