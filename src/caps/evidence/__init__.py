"""From a candidate's text to what a strategy and a judge may see of it; pure, and total on any text."""
