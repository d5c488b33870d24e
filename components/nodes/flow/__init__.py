"""Components that control the run: Begin, Switch, Categorize, Iteration, Loop, forms, Answer, Message."""
