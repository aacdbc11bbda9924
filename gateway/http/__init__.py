"""The HTTP server: `pledger serve`. A route reads a request, calls a wing as commands do, and answers."""
