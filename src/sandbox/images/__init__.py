"""Images: what stands at `/` inside. Getting them, keeping them, and reading what they say about themselves."""
