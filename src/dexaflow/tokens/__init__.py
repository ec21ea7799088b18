"""Agent tokens: minted from an Admitted whose launch is written, verified by the API."""
