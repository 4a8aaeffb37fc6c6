"""One module for each table or figure of the paper that is trained; ``run(call)`` gives its result."""
