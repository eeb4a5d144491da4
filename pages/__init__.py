"""The screens of the dashboard, one file each. They show and ask; what is true comes from the service alone."""
