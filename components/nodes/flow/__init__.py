"""Components that route: Begin, Switch, Categorize, Iteration, Loop, forms, Message."""
