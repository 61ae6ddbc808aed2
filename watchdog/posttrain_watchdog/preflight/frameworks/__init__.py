"""What preflight knows of each framework and engine, one file each: the file's name is the registry."""
