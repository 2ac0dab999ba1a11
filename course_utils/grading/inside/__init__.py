"""What runs inside the learner's process while grading. Nothing in here knows an exercise, a case or a right value."""
