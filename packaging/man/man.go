// Package man holds the manual pages, which are made of the help of commands: those of the system-agent by the program beside, those of the
// hub by a test of hub/cli.
package man

//go:generate go run ./generate
