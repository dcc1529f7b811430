// Package man holds the manual pages, which are generated from the help of the commands: those of the system-agent by package generate,
// those of the hub by a test of hub/cli.
package man

//go:generate go run ./generate
