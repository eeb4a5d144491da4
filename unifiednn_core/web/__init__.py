"""Routes besides the pages. They stream large files, which the framework of the pages would hold in memory."""
