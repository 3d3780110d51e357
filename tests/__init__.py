"""Tests of jobwire, through its public interfaces."""
