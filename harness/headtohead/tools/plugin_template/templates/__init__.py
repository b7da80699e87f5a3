"""What a new package is made from: plugins that work, and the files around them."""
