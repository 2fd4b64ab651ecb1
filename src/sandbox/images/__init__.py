"""Images: what is at `/` inside a sandbox. Fetching them, storing them, and reading their configuration."""
