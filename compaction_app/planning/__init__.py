"""Planning: planners, parameters, hooks, snapshots, and the LLM planner with its usage."""
