"""From a caller's arrays to a back end and back: dtypes, binding to a table, calls, inputs, measurement, reference."""
