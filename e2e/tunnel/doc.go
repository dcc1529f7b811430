// Package tunnel holds the proof of the hub's end of the tunnels against the library that agents use: random schedules compared with TCP,
// each known fault of the library's server shown on it and not on the hub, agents that mean harm, and benchmarks side by side.
package tunnel
