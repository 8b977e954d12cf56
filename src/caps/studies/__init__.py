"""Many contests at once, and what is measured on them."""
