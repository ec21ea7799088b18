"""The server's configuration: one typed schema, YAML and environment."""
