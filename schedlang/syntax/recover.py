from schedlang.diagnostics import error
def errors(table, tokens, start):
    return list(tokens.diagnostics) or [error("SL101", "not a schedule", tokens.span(0))]
