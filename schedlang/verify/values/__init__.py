"""What every location holds: conditions, values on their way, and where a wrong one came from."""
