# Nothing is built here yet: see DESIGN of the profiler house in CONTRIBUTING.md.
