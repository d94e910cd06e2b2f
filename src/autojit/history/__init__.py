"""What remembers how a tensor came to be: nodes, what they keep, and views."""
