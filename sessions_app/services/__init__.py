"""What commands and views ask for: the index, brought up to date and looked into."""
