"""The pages for people: every block in them works, every link leads somewhere, nothing is left out."""
