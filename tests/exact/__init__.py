"""The detector against an oracle that runs small programs in every order the rules allow."""
