"""What people see: values, figures, reports."""
