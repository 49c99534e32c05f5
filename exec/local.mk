# Nothing is built here yet: see DESIGN of the exec house in CONTRIBUTING.md.
