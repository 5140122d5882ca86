"""Matrix products and moves of their fragments."""
