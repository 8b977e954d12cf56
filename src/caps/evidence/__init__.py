"""Evidence: what strategies and judges see of a candidate's text; pure, and defined for any text."""
