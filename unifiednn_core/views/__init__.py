"""Values, words, figures and reports that people see."""
