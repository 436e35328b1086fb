"""Working examples to enable in the configuration, or to copy."""
