"""Agent tokens: minted from an Admitted whose launch is written, verified by the API.

A token is a JWT signed with Ed25519 that speaks for one launch of one attempt and for nothing else. It lives for ten
minutes and is renewed by the agent's heartbeats; the store's word on the launch ends it earlier (R1.7).

Two halves, so that a stolen API process mints nothing: `mint.Minter` holds the private key and is imported by the
dispatcher and the composition root alone; `verify.Verifier` holds public keys.

What is trusted: the file of the signing key, and the time for which control planes have been up (`lifetime`): neither a
clock that jumps nor time in which nobody could renew it ages a token.
"""
