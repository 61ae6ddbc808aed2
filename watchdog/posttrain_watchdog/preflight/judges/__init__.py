"""What preflight objects to, one chapter a file; each judge turns views into findings and knows nothing of files."""
