package host

// helpers are what the test's binary does instead of testing, in a process of its own.
var helpers = map[string]func() int{"unpack": unpackHelper}
