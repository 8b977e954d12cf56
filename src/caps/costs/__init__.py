"""What a selection costs: closed forms, forecasts, and the tokens of one ask."""
