"""Starting and ending processes, their last words, and the folders and shared memory that they leave behind."""
