"""The scripts of the image wire: one file per verb."""
