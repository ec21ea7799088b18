"""What agents say, turned into events on attempts."""
