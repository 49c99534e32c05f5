# Nothing is built here yet: see DESIGN of the kernels house in CONTRIBUTING.md.
