package main

// describeMachine says on what was measured.
func describeMachine() (string, error) { return "", nil }
