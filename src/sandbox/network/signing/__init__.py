"""`signer.sandbox.internal`: what the gate itself answers when programs inside ask for signatures."""
