"""The nouns of the system as frozen values, and the one state table. Pure, standard library only."""
